"""What is refused natively is refused with the same codes; a bad setting of ours is one warning."""

import fcntl
import os
import re
import subprocess
import time

import pytest

from conftest import LIBRARY, PROGRAMS, load

BAD_OPTIONS = ["nonsense:1", "max_split_size_mb:19", "max_split_size_mb:x", "max_split_size_mb",
               "memory_limit_mb:-1",
               "garbage_collection_threshold:1.0", "roundup_power2_divisions:0", "free_mode:never", "ipc:maybe", "cache:perhaps",
               ":",
               "[", "max_split_size_mb:",
               "roundup_power2_divisions:[1:2", "per_process_memory_fraction:1.5", "x" * 3000]


def test_driver(place):
    report = place.report("bad_input_driver")
    assert report.totals["double_frees"] > 0
    assert report.totals["allocated_bytes"] == 0
    assert report.totals["requests"] == report.totals["frees"]


@pytest.mark.parametrize("way", [{}, {"CACHALOT_CONF": "cache:off"},
                                 {"CACHALOT_CONF": "free_mode:strict"},
                                 {"CACHALOT_CONF": "roundup_power2_divisions:8"}])
def test_driver_with_options(place, way):
    place.same("bad_input_driver", **way)


@pytest.mark.parametrize("way", [{}, {"CACHALOT_CONF": "cache:off"}])
def test_runtime(place, way):
    """Each request that is answered with out of memory counts, also where no device could ever serve it."""
    place.same("bad_input_runtime", **way)
    said = [line for line in place.native("bad_input_runtime", **way).out.splitlines() if re.match("cudaMalloc.*: 2$", line)]
    report = place.reports()[-1]
    assert len(said) == report.totals["ooms"] == len(report["oom_events"]) > 5


def test_a_full_device_is_as_full_as_natively(place):
    report = place.report("fill", CACHALOT_SIM_CAPACITY="100M")
    assert report.totals["ooms"] == 3
    assert report.totals["requests"] == report.totals["frees"] == 30


@pytest.mark.parametrize("option", BAD_OPTIONS, ids=lambda option: option[:30])
def test_bad_options(place, option):
    good = place.report("allocate_130")
    os.unlink(next(place.work.glob("*.json")))
    bad = place.report("allocate_130", CACHALOT_CONF=option)
    assert bad.totals["warnings"] == sum(bad.warnings.values()) == 1, bad.warnings
    assert {k: v["value"] for k, v in bad["config"].items()} == {k: v["value"] for k,
                                                                 v in good["config"].items()}


def test_a_bad_option_does_not_spoil_the_others(place):
    report = place.report("allocate_130",
                          CACHALOT_CONF="max_split_size_mb:64,nonsense:1,free_mode:strict")
    assert report["config"]["max_split_size_mb"] == {"value": "64", "source": "CACHALOT_CONF"}
    assert report["config"]["free_mode"]["value"] == "strict"
    assert report.totals["warnings"] == 1


def test_the_variable_of_pytorch(place):
    pytorch = ("max_split_size_mb:64,garbage_collection_threshold:0.5,backend:cudaMallocAsync,"
               "expandable_segments:True")
    report = place.report("allocate_130", PYTORCH_CUDA_ALLOC_CONF=pytorch, CACHALOT_CONF=None)
    assert report["config"]["max_split_size_mb"] == {"value": "64",
                                                     "source": "PYTORCH_CUDA_ALLOC_CONF"}
    assert report["config"]["free_mode"]["source"] == "default"
    assert report.totals["warnings"] == 0


@pytest.mark.parametrize("given, source", [
    ({"ALLOC": 64, "HIP_ALLOC": 96, "CUDA_ALLOC": 128}, "CUDA_ALLOC"),
    ({"ALLOC": 64, "HIP_ALLOC": 96}, "HIP_ALLOC"),
    ({"ALLOC": 64}, "ALLOC"),
    ({"ALLOC": 64, "CUDA_ALLOC": None}, None),
    ({"ALLOC": 64, "HIP_ALLOC": None}, None)], ids=str)
def test_the_order_of_pytorchs_variables(place, given, source):
    """That of PyTorch 2.15: one that is empty counts, and then the defaults hold."""
    variables = {f"PYTORCH_{name}_CONF": f"max_split_size_mb:{size}" if size else "" for name, size in given.items()}
    report = place.report("allocate_130", CACHALOT_CONF=None, **variables)
    wanted = {"value": str(given[source]), "source": f"PYTORCH_{source}_CONF"} if source else \
        {"value": "unlimited", "source": "default"}
    assert report["config"]["max_split_size_mb"] == wanted and report.totals["warnings"] == 0


@pytest.mark.parametrize("signal", ["KILL", "SEGV", "9", "77777", "NONSENSE", "-1", "1.5"])
def test_bad_signal(place, signal):
    report = place.report("allocate_130", CACHALOT_SIGNAL=signal)
    assert report.warned("CACHALOT_SIGNAL") == 1 and report.totals["warnings"] == 1
    assert report["process"]["report_signal"] == 10


def test_output_directories_are_made(place):
    place.same("allocate_130", CACHALOT_OUTPUT="a/b/%e.json")
    assert load(place.work / "a/b/allocate_130.json")["totals"]["requests"] == 6


def test_output_pattern(place):
    place.same("allocate_130", CACHALOT_OUTPUT="%%-%e-%r-%q{WHO}-%h-%n-%t.json", RANK="3",
               WHO="../me")
    (name,) = [path.name for path in place.work.iterdir()]
    assert name.startswith("%-allocate_130-3-") and "me-" in name and name.endswith(".json")
    assert f"-{os.uname().nodename}-" in name
    load(place.work / name)


@pytest.mark.parametrize("pattern", ["x-%Q.json", "%", "%q{", "r" * 300 + "/r.json",
                                     "r/" * 3000 + "r.json"],
                         ids=lambda pattern: pattern[:9])
def test_output_pattern_that_is_wrong(place, pattern):
    report = place.report("allocate_130", CACHALOT_OUTPUT=pattern)
    assert report.warned("CACHALOT_OUTPUT is not usable") == 1


@pytest.mark.parametrize("output", ["/proc/nothing/r.json", "/dev/null/r.json", "directory"],
                         ids=["no directory", "no file", "a directory"])
def test_output_that_cannot_be_written(place, output):
    """The program goes on as ever, and the page stays for harvest."""
    (place.work / "directory").mkdir()
    place.same("allocate_130", CACHALOT_OUTPUT=output)
    assert [path.name for path in place.work.iterdir()] == ["directory"]
    (page,) = place.left_pages()
    done = place.cachalot("harvest", "--output", "found.json")
    assert done.code == 0, done.err
    assert load(place.work / "found.json")["totals"]["requests"] == 6


def test_no_report_wanted(place):
    """Then there is none, of a program that ends, is asked or is killed; no page is left, and nothing is said."""
    place.same("allocate_130", CACHALOT_OUTPUT="/dev/null", CACHALOT_LOG="log")
    assert place.left_pages() == []
    process = place.start("wait_for_input", CACHALOT_OUTPUT="/dev/null", CACHALOT_LOG="log")
    process.stdout.readline()
    done = place.cachalot("dump", process.pid)
    assert (done.code, done.out, done.err) == (0, "/dev/null\n", "")
    process.kill()
    process.wait()
    done = place.cachalot("harvest")
    assert (done.code, done.out, done.err) == (0, "", "")
    done = place.cachalot("run", "--summary", PROGRAMS / "allocate_130", CACHALOT_OUTPUT="/dev/null")
    assert (done.code, done.err) == (0, "cachalot: no report: CACHALOT_OUTPUT is /dev/null\n")
    assert list(place.work.iterdir()) == [] and place.left_pages() == []


def test_full_disk(place):
    """RLIMIT_FSIZE: no part of a report is left, no signal kills, no page has a file."""
    native = place.native("allocate_130")
    limited = f"ulimit -f 4; LD_PRELOAD={place.preload(LIBRARY)} {PROGRAMS}/allocate_130"
    ours = place.run("/bin/bash", "-c", limited, preload=())
    assert (ours.code, ours.out, ours.err) == (0, native.out, "")
    assert list(place.work.iterdir()) == [] and place.left_pages() == []


@pytest.fixture
def small_disk(place):
    """A tmpfs of 8 KiB."""
    path = place.work / "small"
    path.mkdir(mode=0o700)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k,mode=700", "none", path], check=False,
                      capture_output=True).returncode:
        pytest.skip("mounting needs root")
    yield path
    subprocess.run(["umount", path], check=True)


def test_full_disk_for_the_report(place, small_disk):
    place.same("allocate_130", CACHALOT_OUTPUT=small_disk / "r.json")
    assert list(small_disk.iterdir()) == []
    assert len(place.left_pages()) == 1


def test_full_disk_for_the_page(place, small_disk):
    report = place.report("allocate_130", CACHALOT_PAGE_DIR=small_disk)
    assert list(small_disk.iterdir()) == []
    assert report.warned("no room in the page's directory") == 1
    assert report.totals["requests"] == 6


def test_no_page_directory(place):
    """The report is whole, and says why the page had no file."""
    report = place.report("allocate_130", CACHALOT_PAGE_DIR="/proc/self/nothing")
    assert report.warned("page") == 1
    assert report.totals["requests"] == 6


def test_report_of_a_living_writer_is_not_replaced(place):
    waiting = place.start("wait_for_input", CACHALOT_OUTPUT="r.json")
    assert waiting.stdout.readline() == "ready\n"
    place.cachalot("dump", waiting.pid)
    (place.work / "r.1.json").rename(place.work / "r.json")
    other = place.start("allocate_130", CACHALOT_OUTPUT="r.json")
    other.communicate()
    assert load(place.work / "r.json")["process"]["pid"] == waiting.pid
    assert load(place.work / f"r.{other.pid}.json")["process"]["pid"] == other.pid
    waiting.communicate("\n")
    last = load(place.work / "r.json")
    assert (last["process"]["pid"], last["kind"]) == (waiting.pid, "exit")


def test_a_lock_that_is_never_given_back(place):
    """By whoever holds the output's directory, stopped perhaps: nothing waits for it."""
    directory = os.open(place.work, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    begin = time.monotonic()
    done = place.run("allocate_130", CACHALOT_OUTPUT="r.json", timeout=20)
    took = time.monotonic() - begin
    os.close(directory)
    assert (done.code, done.err) == (0, "") and took < 0.9
    assert load(place.work / "r.json")["totals"]["requests"] == 6


@pytest.mark.parametrize("by, left", [((), 2), (("run",), 1), (("run", "--summary"), 1)])
def test_report_of_a_dead_writer(place, by, left):
    """Two runs, one after the other. Only `cachalot run` says which processes belong together."""
    for _ in range(2):
        if by:
            assert place.cachalot(*by, "--output", "r.json", PROGRAMS / "allocate_130").code == 0
        else:
            place.run("allocate_130", CACHALOT_OUTPUT="r.json")
    assert len(list(place.work.iterdir())) == left


def test_a_file_that_is_no_report(place):
    (place.work / "r.json").write_text("mine\n")
    place.same("allocate_130", CACHALOT_OUTPUT="r.json")
    assert (place.work / "r.json").read_text() == "mine\n"
    (path,) = place.work.glob("r.*.json")
    assert load(path)["totals"]["requests"] == 6


def test_symbolic_link_as_output_is_not_followed(place):
    (place.work / "victim").write_text("mine\n")
    (place.work / "r.json").symlink_to("victim")
    place.same("allocate_130", CACHALOT_OUTPUT="r.json")
    assert (place.work / "victim").read_text() == "mine\n"


@pytest.mark.parametrize("conf", ["", "expandable_segments:True", "thread_cache:off", "free_mode:fence"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_calls_at_random(place, seed, conf):
    """Right and wrong ones: what each answers."""
    place.same("random_calls", seed, 4000, CACHALOT_CONF=conf, CACHALOT_SIM_CAPACITY="16G")
