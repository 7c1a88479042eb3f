"""The published experiments (seeds): unmodified programs on the simulated device with the library
in front, their figures to the byte. Each stops at points, where a report is asked for."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import jsonschema
import pytest

import sanitizer
from sanitizer import BUILD, ROOT

SCHEMA = json.loads((ROOT / "stats/report/report.schema.json").read_text())
COMMAND = [sys.executable, str(ROOT / "scripts/cachalot")]
MIB = 1 << 20
GIB = 1 << 30
FLOAT = 4


class Figures:
    """What a report says of its one device."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.report = json.loads(self.path.read_text())
        jsonschema.Draft202012Validator(SCHEMA).validate(self.report)
        self.totals = self.report["totals"]
        (self.device,) = self.report["devices"]
        self.counters = self.device["counters"]

    def now(self, name):
        return self.device["statistics"][name]["all"]["current"]

    def peak(self, name):
        return self.device["statistics"][name]["all"]["peak"]

    @property
    def allocated(self):
        return self.now("allocated_bytes")

    @property
    def reserved(self):
        return self.now("reserved_bytes")

    @property
    def requested(self):
        return self.now("requested_bytes")


class Program:
    """A running program of test/workloads that waits at its points."""

    def __init__(self, place, name, arguments, environment):
        self.output = place / "report.json"
        self.pages = tempfile.mkdtemp(prefix="cachalot-seeds-", dir="/dev/shm")
        self.findings = sanitizer.Findings()
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("CACHALOT_", "PYTORCH_"))}
        self.environment = {**clean, **self.findings.environment(leaks=True),
                            "CACHALOT_PAGE_DIR": self.pages,
                            "CACHALOT_LIBRARY": str(BUILD / "libcachalot.so")}
        self.process = subprocess.Popen(
            [BUILD / "test/workloads" / name, *arguments], cwd=place, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**self.environment,
                 "LD_PRELOAD": ":".join([*sanitizer.PRELOAD, str(BUILD / "libcachalot.so")]),
                 "LD_LIBRARY_PATH": str(BUILD / "test/sim"), "CACHALOT_OUTPUT": str(self.output),
                 "CACHALOT_SIM_CAPACITY": "64G", **environment,
                 # The published figures are those of ordinary segments.
                 "CACHALOT_CONF": ",".join(filter(None, ["expandable_segments:False", environment.get("CACHALOT_CONF")]))})

    def ask(self, command):
        """A command of scripts/cachalot for this process; what it printed."""
        done = subprocess.run([*COMMAND, command, str(self.process.pid)], env=self.environment,
                              capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def at(self, name, *then):
        """The figures at the point, after the commands in `then`. The program goes on."""
        assert self.process.stdout.readline() == f"point {name}\n"
        for command in then:
            self.ask(command)
        figures = Figures(self.ask("dump"))
        assert figures.report["kind"] == "request"
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return figures

    def end(self, code=0):
        """The figures of the report at exit."""
        rest, _ = self.process.communicate(timeout=30)
        assert (self.process.returncode, rest) == (code, "")
        figures = Figures(self.output)
        assert figures.report["kind"] == "exit" and figures.report["exit"]["code"] == code
        assert figures.report["coverage"]["status"] == "full"
        assert figures.totals["warnings"] == 0 and figures.totals["late_frees"] == 0
        return figures

    def close(self):
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            try:
                stream.close()
            except BrokenPipeError:
                pass
        shutil.rmtree(self.pages)
        self.findings.close()


@pytest.fixture
def start(tmp_path):
    """start(program, argument…, VARIABLE=value…)"""
    started = []

    def begin(name, *arguments, **environment):
        place = tmp_path / str(len(started))
        place.mkdir()
        started.append(Program(place, name, arguments, environment))
        return started[-1]

    if not (BUILD / "test/workloads/seed1_activations").exists():
        pytest.skip(f"the workloads are not built in {BUILD}")
    yield begin
    for program in started:
        program.close()


def test_1_activations_of_a_network(start):
    program = start("seed1_activations")
    before = program.at("before")
    assert (before.allocated, before.requested) == (4608, 4608)
    made = program.at("parameters")
    assert made.allocated == 1457152 and made.allocated - before.allocated == 1452544
    assert made.requested - before.requested == 1449200
    forward = program.at("forward")
    assert forward.allocated == 1514496 and forward.allocated - made.allocated == 57344
    end = program.end()
    assert end.peak("allocated_bytes") == 1514496
    assert end.totals["leaked_bytes"] == 1514496 and end.totals["leaked_blocks"] == 16
    assert end.totals["requests"] == 16 and end.totals["frees"] == 0


def test_2_allocated_against_reserved(start):
    program = start("seed2_reserved")
    made = program.at("both made", "empty-cache")
    assert (made.allocated, made.reserved) == (20971520, 20971520)
    first = program.at("first freed")
    assert (first.allocated, first.reserved) == (16777216, 20971520)
    both = program.at("both freed")
    assert (both.allocated, both.reserved) == (0, 20971520)
    emptied = program.at("emptied", "empty-cache")
    assert (emptied.allocated, emptied.reserved, emptied.now("segment")) == (0, 0, 0)
    end = program.end()
    assert end.totals["leaked_bytes"] == 0 and end.report["leaks"] == []
    assert end.totals["peak_reserved_bytes"] == 20971520
    assert end.totals["device_alloc"] == end.totals["device_free"]


def test_2_with_a_second_reference(start):
    program = start("seed2_reserved", "held")
    for point in ("both made", "first freed", "both freed", "emptied"):
        figures = program.at(point, "empty-cache")
        assert (figures.allocated, figures.reserved) == (20971520, 20971520)
    assert program.end().totals["device_free"] == 0


def test_3_the_fourth_3_gib(start):
    program = start("seed3_backward")
    for point, mib in (("x", 3072), ("y", 6144), ("backward", 9216)):
        assert program.at(point).allocated == mib * MIB
    end = program.end()
    assert end.peak("allocated_bytes") == 12288 * MIB
    assert end.device["at_peak_allocated"]["allocated_bytes"] == 12288 * MIB
    assert end.device["memory_stats"]["allocated_bytes.all.peak"] == 12288 * MIB


def test_3_in_one_expression(start):
    program = start("seed3_backward", "one-expression")
    assert program.at("x").allocated == 3072 * MIB
    assert program.at("backward").allocated == 6144 * MIB
    assert program.end().peak("allocated_bytes") == 9216 * MIB


def test_4a_no_hole_serves_64_mib(start):
    program = start("seed4a_holes")
    ten = program.at("ten")
    assert (ten.now("segment"), ten.reserved, ten.allocated) == (2, 40 * MIB, 40 * MIB)
    five = program.at("five")
    assert (five.allocated, five.reserved) == (20 * MIB, 40 * MIB)
    grown = program.at("64 MiB")
    assert (grown.now("segment"), grown.reserved) == (3, 104 * MIB)
    assert grown.now("inactive_split_bytes") == 20971520
    assert grown.now("inactive_split") == 5
    assert grown.device["fragmentation"]["inactive_split_bytes"] == 20971520
    assert grown.device["fragmentation"]["largest_allocatable_bytes"] == 4 * MIB
    assert grown.allocated == 84 * MIB
    program.end()


def test_4b_by_default_out_of_memory(start):
    program = start("seed4b_tenants", CACHALOT_CONF="memory_limit_mb:8192")
    split = program.at("B came")
    assert (split.allocated, split.reserved) == (2 * GIB, 5 * GIB)
    assert split.now("inactive_split_bytes") == 3 * GIB
    failed = program.at("out of memory")
    assert (failed.allocated, failed.reserved) == (2 * GIB, 5 * GIB)
    end = program.end(3)
    (event,) = end.report["oom_events"]
    assert {name: event[name] for name in (
        "device", "requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes",
        "reusable_bytes", "largest_allocatable_bytes", "memory_limit_bytes", "native_would_fit",
    )} == {
        "device": 0, "requested_bytes": 4 * GIB, "allocated_bytes": 2 * GIB,
        "active_bytes": 2 * GIB, "reserved_bytes": 5 * GIB, "reusable_bytes": 3 * GIB,
        "largest_allocatable_bytes": 3 * GIB, "memory_limit_bytes": 8 * GIB,
        "native_would_fit": True}
    assert end.totals["ooms"] == 1 and end.counters["num_ooms"] == 1


def test_4b_fits_in_mapped_memory(start):
    program = start("seed4b_tenants", CACHALOT_CONF="memory_limit_mb:8192,expandable_segments:True")
    program.at("B came")
    served = program.at("served")
    assert (served.allocated, served.reserved) == (6 * GIB, 6 * GIB)
    end = program.end()
    assert end.totals["ooms"] == 0 and end.peak("reserved_bytes") <= 6 * GIB


@pytest.mark.parametrize("mib", [128, 256, 512])
def test_4b_with_max_split_size(start, mib):
    program = start("seed4b_tenants", CACHALOT_CONF=f"memory_limit_mb:8192,max_split_size_mb:{mib}")
    assert program.at("B came").reserved == 6 * GIB
    served = program.at("served")
    assert (served.allocated, served.reserved) == (6 * GIB, 6 * GIB)
    end = program.end()
    assert end.peak("reserved_bytes") == 6 * GIB
    assert end.totals["ooms"] == 0 and end.report["oom_events"] == []
    assert end.counters["max_split_size_bytes"] == mib * MIB


CHANNELS = [64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M"]
LINEAR = [512 * 7 * 7, 4096, 4096, 1000]


def vgg16_parameters():
    """Elements of each parameter: Cin·Cout·K·K, Cout; M·N, N."""
    convolutions = [c for c in CHANNELS if c != "M"]
    sizes = []
    for inside, outside in zip([3, *convolutions], convolutions):
        sizes += [inside * outside * 3 * 3, outside]
    for inside, outside in zip(LINEAR, LINEAR[1:]):
        sizes += [inside * outside, outside]
    return sizes


def vgg16_activations():
    """Elements that each layer gives for one image of 224×224."""
    side, depth, sizes = 224, 3, []
    for channels in CHANNELS:
        side, depth = (side // 2, depth) if channels == "M" else (side, channels)
        sizes.append(depth * side * side)
    return sizes + LINEAR[1:]


PAGE = os.sysconf("SC_PAGESIZE")


class Packing:
    """The rules of sizes for a program that frees nothing: what it then holds and reserves."""

    def __init__(self):
        self.requested = self.allocated = self.reserved = 0
        self.rests = {True: [], False: []}

    def take(self, size):
        rounded = -(-size // 512) * 512
        small = rounded <= MIB
        rounded = rounded if small else -(-rounded // PAGE) * PAGE  # large blocks begin on a page of the host
        rests = self.rests[small]
        fitting = [rest for rest in rests if rest >= rounded]
        if fitting:
            block = min(fitting)
            rests.remove(block)
        else:
            block = 2 * MIB if small else 20 * MIB
            block = block if rounded < 10 * MIB else -(-rounded // (2 * MIB)) * 2 * MIB
            self.reserved += block
        rest = block - rounded
        if rest >= 512 if small else rest > MIB:
            rests.append(rest)
            block = rounded
        self.requested += size
        self.allocated += block


VGG16_POINTS = {
    "parameters": vgg16_parameters(),
    "image of 224": [3 * 224 * 224],
    "image of 500": [3 * 500 * 500],
    "batch": [256 * 3 * 100 * 100],
    "batch norm": [64, 64],
    "embedding": [10000 * 128],
    "momentum": vgg16_parameters(),
    "forward": vgg16_activations(),
    "backward": vgg16_activations(),
}
VGG16_BYTES = {"parameters": 553430176, "image of 224": 602112, "image of 500": 3000000,
               "batch": 30720000, "batch norm": 512, "embedding": 5120000, "momentum": 553430176}


def test_5_vgg16_by_formula(start):
    program = start("seed5_vgg16")
    expected = Packing()
    for point, elements in VGG16_POINTS.items():
        before = expected.requested
        for count in elements:
            expected.take(FLOAT * count)
        figures = program.at(point)
        assert VGG16_BYTES.get(point) in (None, expected.requested - before)
        assert figures.requested == expected.requested, point
        assert figures.allocated == expected.allocated, point
        assert figures.reserved == expected.reserved, point
        internal = figures.device["fragmentation"]["internal_ratio"]
        assert internal == pytest.approx(1 - expected.requested / expected.allocated, abs=1e-9)
    assert program.end().totals["requested_bytes"] == expected.requested


def test_7_growth_that_is_not_cache(start):
    program = start("seed7_growth")
    half = program.at("20 steps", "empty-cache")
    whole = program.at("40 steps", "empty-cache")
    assert half.requested == 20 * 3000001 + 4 * 4096
    assert whole.requested == 2 * half.requested
    assert whole.reserved > half.reserved > half.allocated
    end = program.end()
    leaks = {leak["requested_bytes"]: leak for leak in end.report["leaks"]}
    assert {size: leak["count"] for size, leak in leaks.items()} == {3000001: 40, 4096: 8}
    assert leaks[3000001]["total_requested_bytes"] == 40 * 3000001
    assert leaks[4096]["allocated_bytes"] == 8 * 4096
    assert end.totals["leaked_blocks"] == 48
    assert end.totals["leaked_bytes"] == end.allocated == sum(
        leak["allocated_bytes"] for leak in leaks.values())


def test_7_what_was_forgotten_survives_a_kill(start):
    program = start("seed7_growth")
    live = program.at("20 steps")
    assert program.process.stdout.readline() == "point 40 steps\n"
    program.process.send_signal(signal.SIGKILL)
    program.process.wait()
    done = subprocess.run([*COMMAND, "harvest", program.pages], env=program.environment,
                          capture_output=True, text=True, timeout=30, check=True)
    harvested = Figures(done.stdout.strip())
    assert harvested.report["kind"] == "harvest"
    assert harvested.totals["leaked_blocks"] == 48
    assert harvested.totals["requests"] == 2 * live.totals["requests"] == 88
    leaks = harvested.report["leaks"]  # by size class: the blocks died with the process
    assert sum(leak["total_requested_bytes"] for leak in leaks) == 40 * 3000001 + 8 * 4096
