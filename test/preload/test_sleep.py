"""Sleep and wake: device memory goes to the host and comes back, with the same bytes at the same addresses."""

import json
import os
import pathlib
import random
import re
import resource
import signal
import time

import pytest

import sanitizer
from conftest import MIB, Report, load, stop

MAPPED = {"CACHALOT_CONF": "expandable_segments:True"}
# Of each: `CACHALOT_SLEEP_MOMENTS` kills, and as many stops.
MOMENTS = int(os.environ.get("CACHALOT_SLEEP_MOMENTS", "6"))
EVERY = int(os.environ.get("CACHALOT_EVERY", "60"))  # one of so many failing calls; 1: all


class Sleeper:
    """The program `sleeper`, which does what it is told."""

    def __init__(self, place, memory="memory", **environment):
        self.place, self.memory = place, place.work / memory
        self.process = place.start("sleeper", CACHALOT_SIM_SHARED=self.memory, **{**MAPPED, **environment})
        assert self.process.stdout.readline() == "ready\n", self.process.stderr.read()

    def begin(self, action):
        self.process.stdin.write(action + "\n")
        self.process.stdin.flush()

    def end(self, action):
        line = self.process.stdout.readline()
        assert line.startswith(action + ": "), (line, self.process.stderr.read() if not line else "")
        return int(line.rsplit(" ", 1)[1])

    def do(self, action):
        self.begin(action)
        return self.end(action)

    @property
    def on_device(self):
        """Bytes that the simulated device has handed out."""
        return int.from_bytes(self.memory.read_bytes()[:8], "little")

    @property
    def state(self):
        entries = [json.loads(line) for line in self.place.cachalot("ls", "--json").out.splitlines()]
        return {entry["pid"]: entry["state"] for entry in entries}[self.process.pid]

    def ask(self, *words):
        return self.place.cachalot(words[0], self.process.pid, *words[1:])

    def finish(self):
        assert self.do("check") == 0
        out, err = self.process.communicate(timeout=60 * sanitizer.SLOWER)
        assert (self.process.returncode, out, err) == (0, "", "")
        return self.place.only_report()["sleep"]


@pytest.fixture
def sleeper(place):
    return Sleeper(place)


def test_by_command(place, sleeper):
    """Nothing of ours stays on the device; live bytes alone move."""
    awake = sleeper.on_device
    slept = sleeper.ask("sleep")
    assert slept.code == 0 and "asleep: " in slept.out, slept.err
    assert awake > 64 * MIB and sleeper.on_device == 0
    assert sleeper.state == "asleep"
    (look,) = [json.loads(line) for line in place.cachalot("top", "--json", "--once").out.splitlines()]
    assert [process["state"] for process in look["processes"]] == ["asleep"]
    dumped = sleeper.ask("dump")  # nothing else is held
    during = Report(load(dumped.out.strip()))["sleep"]
    assert during["state"] == "asleep" and during["stored_bytes"] == during["out_bytes"]
    assert 70 * MIB < during["stored_bytes"] < during["away_bytes"] < 90 * MIB
    assert sleeper.ask("sleep").err.startswith("cachalot: it sleeps already")
    woken = sleeper.ask("wake")
    assert woken.code == 0 and "awake: " in woken.out
    assert sleeper.on_device == during["away_bytes"] and sleeper.state == "running"
    os.remove(dumped.out.strip())
    after = sleeper.finish()
    assert (after["state"], after["sleeps"], after["wakes"], after["refused"]) == ("awake", 1, 1, 0)
    assert after["in_bytes"] == after["out_bytes"] and after["stored_bytes"] == after["away_bytes"] == 0
    assert after["in_ns"] > 0 and after["out_ns"] > 0


@pytest.mark.parametrize("action", ["check", "launch", "set", "attribute", "begin_capture", "grow", "in_context", "export"])
def test_on_demand(sleeper, action):
    """Twice, since the second sleep finds what the first wake has left."""
    for _ in range(1 if action in ("export", "begin_capture") else 2):
        assert sleeper.do("sleep") == 0 and sleeper.on_device == 0
        assert sleeper.do(action) == 0
        assert sleeper.on_device > 64 * MIB
    if action == "begin_capture":
        assert sleeper.do("end_capture") == 0
    assert sleeper.finish()["wakes"] == (1 if action in ("export", "begin_capture") else 2)


NAMING = ["cuGraphAddMemcpyNode", "cuGraphAddMemsetNode", "cuGraphAddBatchMemOpNode", "cuGraphAddChildGraphNode", "cuGraphClone",
          "cuGraphMemcpyNodeSetParams", "cuGraphMemsetNodeSetParams", "cuGraphBatchMemOpNodeSetParams", "cuGraphNodeSetParams",
          "cuGraphNodeSetParams_v2", "cuGraphExecMemsetNodeSetParams", "cuGraphExecBatchMemOpNodeSetParams", "cuTexRefSetAddress_v2",
          "cuTexRefSetAddress2D_v2", "cuTexRefSetAddress2D_v3"]


def test_who_names_memory_wakes(sleeper):
    for name in NAMING:
        assert sleeper.do("sleep") == 0 and sleeper.on_device == 0
        assert sleeper.do(f"call {name}") == 801, name  # the simulated driver has none of them
        assert sleeper.on_device > 64 * MIB, name
    assert sleeper.finish()["wakes"] == len(NAMING)


def test_what_needs_no_device_wakes_nobody(sleeper):
    before = sleeper.do("available")
    assert sleeper.do("sleep") == 0
    assert sleeper.do("available") == before
    assert sleeper.do("reuse") == 0 and sleeper.do("fork") == 7
    sleeper.process.send_signal(signal.SIGUSR1)
    assert sleeper.ask("empty-cache").out.endswith(": 0 bytes given back\n")
    assert sleeper.state == "asleep" and sleeper.on_device == 0


def test_graphs_work_after_a_wake(sleeper):
    assert (sleeper.do("begin_capture"), sleeper.do("end_capture"), sleeper.do("launch_graph")) == (0, 0, 0)
    assert sleeper.do("sleep") == 0 and sleeper.on_device == 0
    assert sleeper.do("launch_graph") == 0
    assert sleeper.finish()["wakes"] == 1


def test_held_until_the_command(sleeper):
    assert sleeper.ask("sleep", "--hold").code == 0
    sleeper.begin("launch")
    time.sleep(0.3)
    assert sleeper.state == "asleep" and sleeper.on_device == 0
    assert sleeper.ask("wake").code == 0
    assert sleeper.end("launch") == 0
    sleeper.finish()


REFUSALS = {
    "begin_capture": "a capture is active",
    "spin": "work on the device does not end",
    "export": "memory is shared with other processes",
}


@pytest.mark.parametrize("action", REFUSALS)
def test_refused(sleeper, action):
    assert sleeper.do(action) == 0
    before = sleeper.on_device
    answer = sleeper.ask("sleep")
    assert answer.code == 1 and REFUSALS[action] in answer.err and not answer.out
    assert sleeper.on_device == before and sleeper.state == "running"
    if action != "export":
        assert sleeper.do({"begin_capture": "end_capture", "spin": "end_spin"}[action]) == 0
        assert sleeper.ask("sleep").code == 0
    assert sleeper.finish()["refused"] == 1


def test_ordinary_segments(place):
    sleeper = Sleeper(place, CACHALOT_CONF="expandable_segments:False")
    answer = sleeper.ask("sleep")
    assert answer.code == 1 and "ordinary segments" in answer.err
    answer = sleeper.ask("sleep", "--partial")
    assert answer.code == 1 and "there is no mapped memory" in answer.err
    sleeper.finish()


def test_a_full_host(sleeper):
    number, no_limit = sleeper.process.pid, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    pages = int(pathlib.Path(f"/proc/{number}/statm").read_text().split()[0])
    before = resource.prlimit(number, resource.RLIMIT_AS, (pages * resource.getpagesize() + 16 * MIB, no_limit[1]))
    answer = sleeper.ask("sleep")
    assert answer.code == 1 and "the host has too little free memory" in answer.err
    resource.prlimit(number, resource.RLIMIT_AS, before)
    assert sleeper.ask("sleep").code == 0 and sleeper.on_device == 0
    assert sleeper.finish()["refused"] == 1


def test_all(place):
    several = [Sleeper(place, name) for name in ("memory", "other_memory")]
    assert place.cachalot("sleep", "--all").code == 0
    assert [sleeper.state for sleeper in several] == ["asleep", "asleep"]
    assert place.cachalot("wake", "--all").code == 0
    assert [sleeper.state for sleeper in several] == ["running", "running"]
    assert [sleeper.do("check") for sleeper in several] == [0, 0]


@pytest.mark.parametrize("mode", ["free_mode:fence", "slack:check", "fill:nan"])
def test_other_modes_refuse(place, mode):
    """Slack and fills touch device memory on streams of our own, where no gate stands."""
    sleeper = Sleeper(place, CACHALOT_CONF=f"expandable_segments:True,{mode}")
    answer = sleeper.ask("sleep")
    assert answer.code == 1 and "free_mode:async" in answer.err
    sleeper.finish()


def test_a_device_that_is_full(place):
    """Another process has taken the memory: the wake waits until it gives that back."""
    sleeper = Sleeper(place, CACHALOT_SIM_CAPACITY="300M")
    assert sleeper.do("sleep") == 0
    other = place.start("starve", 125, 60, "hold", CACHALOT_SIM_SHARED=sleeper.memory, CACHALOT_SIM_CAPACITY="300M", **MAPPED)
    end = time.monotonic() + 30 * sanitizer.SLOWER
    while sleeper.on_device < 250 * MIB:
        assert time.monotonic() < end
        time.sleep(0.01)
    sleeper.begin("check")
    time.sleep(0.5)
    assert sleeper.state == "asleep"
    other.kill()
    other.wait()
    assert sleeper.end("check") == 0
    sleeper.finish()


def calls(out):
    """{function: (calls before, calls after)} of a run of sleep_fails."""
    return {name: (int(first), int(last)) for name, first, last in re.findall(r"^call (\w+) (\d+) (\d+)$", out, re.M)}


@sanitizer.unless_sanitized("too long", ("tsan",))
@pytest.mark.parametrize("how", ["by_command", "on_demand"])
def test_each_call_fails(place, how):
    """Once: the process is awake with all its bytes in the end. The first and the last call of each function, or all."""
    done = place.run("sleep_fails", how, **MAPPED)
    assert done.code == 0 and done.value("slept") == 1 and done.value("wrong") == 0, done.err
    reached = calls(done.out)
    assert {"cuMemUnmap", "cuMemRelease", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemcpyDtoHAsync_v2",
            "cuMemcpyHtoDAsync_v2", "cuStreamSynchronize", "cuCtxRecordEvent", "cuMemHostAlloc"} <= set(reached)
    slept = set()
    for name, (first, last) in reached.items():
        numbers = range(first + 1, last + 1)
        for number in numbers if EVERY == 1 else sorted({numbers[0], numbers[-1]}):
            for error in (2, 999) if EVERY == 1 else (2,):
                times = 2 if name in ("cuMemUnmap", "cuMemRelease") else 1  # a call to give back is tried twice
                fail = ",".join(f"{name}:{number + i}:{error}" for i in range(times))
                failed = place.run("sleep_fails", how, CACHALOT_SIM_FAIL=fail, **MAPPED)
                if name == "cuMemsetD8_v2":
                    continue  # the program's own
                assert failed.code == 0 and failed.value("wrong") == 0, (name, number, error, failed.out, failed.err)
                slept.add((name, failed.value("slept")))
    assert {("cuMemUnmap", 0), ("cuMemRelease", 0), ("cuMemCreate", 1), ("cuMemMap", 1), ("cuMemcpyDtoHAsync_v2", 0)} <= slept


@pytest.mark.parametrize("seed", range(1, 2 if sanitizer.KIND else 4))
def test_sleeps_at_random_moments(place, seed):
    threads = seed % 3 + 1
    share = 1 if sanitizer.KIND is None else 4
    done = place.run("sleep_stress", seed, threads, 400 // share, 400 // share, CACHALOT_SIM_CAPACITY="320M",
                     CACHALOT_SIM_DELAY="7" if seed % 2 else None, CACHALOT_CONF="expandable_segments:True,large_segment_size_mb:2")
    assert done.code == 0 and done.value("cachalot_sim_unfinished()") == 0, done.err
    report = place.only_report()
    assert report["sleep"]["sleeps"] == int(done.err) > 0
    assert report["sleep"]["wakes"] in (report["sleep"]["sleeps"], report["sleep"]["sleeps"] - 1)


def test_kills_and_stops_at_random_moments(place):
    """A process that is killed leaves a page that can be read; one that is stopped goes on."""
    chance = random.Random(7)
    for number in range(MOMENTS):
        process = place.start("sleep_stress", number, 2, 100000, 100000, CACHALOT_SIM_CAPACITY="1G", **MAPPED)
        time.sleep(0.05 * sanitizer.SLOWER + chance.random() * 0.2)
        for _ in range(3):
            stop(process)
            time.sleep(chance.random() * 0.01)
            process.send_signal(signal.SIGCONT)
            time.sleep(chance.random() * 0.01)
        assert process.poll() is None, process.stderr.read()
        process.kill()
        process.communicate()
        place.running.remove(process)
    reports = place.harvest()
    assert len(reports) == MOMENTS
    assert all(report["sleep"]["state"] in ("awake", "falling asleep", "asleep", "waking") for report in reports)
    assert sum(report["sleep"]["sleeps"] for report in reports) > 0
