"""Call sites (CACHALOT_SITES): the lines that hold memory, natively and in Python."""

import glob
import os
import re
import shutil
import subprocess
import sys

import pytest
import sanitizer

from conftest import HERE, MIB, SIM, Report, load
from test_requests import ready

PYTHONS = [sys.executable, *(path for path in sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3")))
                             if int(path.split("/3.")[1].split(".")[0]) >= 9),
           *filter(None, os.environ.get("CACHALOT_PYTHONS", "").split(":"))]  # more of them
LOAD = """
import ctypes, sys
cuda = ctypes.CDLL("libcudart.so.13")  # lets the interpreter's lock go; PyDLL keeps it
pointer = ctypes.c_void_p()
"""
STEPS = LOAD + """
def step(n):
    cuda.cudaMalloc(ctypes.byref(pointer), n)

def main():
    for i in range(3):
        step(1000 + i)
    step(5)

main()
"""


def run(place, script, python=sys.executable, code=0, name="script.py", **more):
    (place.work / name).write_text(script)
    done = place.run(python, place.work / name, CACHALOT_SITES=more.pop("sites", "1"), **more)
    assert done.code == code, done.err
    return done, place.reports()[-1]


def test_off(place):
    report = place.report("allocate_130", CACHALOT_SITES="0")
    assert "sites" not in report and "site" not in report["leaks"][0]


def test_leaks_have_no_line_of_a_sample(place):
    """A sample stands for others: no block and no leak has a line of its own."""
    report = place.report("allocate_130")
    assert report["sites_every"] is None and report["sites_mean_bytes"] >= 2 * MIB
    assert "site" not in report["leaks"][0]


PEAK = LOAD + """
def take(n):
    p = ctypes.c_void_p()
    assert cuda.cudaMalloc(ctypes.byref(p), n) == 0
    return p
def first():
    return take(64 << 20)
def second():
    return [take(40 << 20) for _ in range(3)]
def third():
    return take(48 << 20)
kept = first()
for p in second():
    assert cuda.cudaFree(p) == 0
more = third()
"""


@pytest.mark.parametrize("sites", [None, "1"])
def test_the_peak_has_its_lines(place, sites):
    """Blocks 20 times as large as the mean distance are in any sample."""
    (place.work / "script.py").write_text(PEAK)
    done = place.run(sys.executable, place.work / "script.py", **({"CACHALOT_SITES": sites} if sites else {}))
    assert done.code == 0, done.err
    report = place.only_report()
    (peak,) = {device["statistics"]["allocated_bytes"]["all"]["peak"] for device in report["devices"]}
    assert peak == 184 * MIB
    def held(key):
        found = {}
        for site in report["sites"]:
            names = [frame.split()[-1] for frame in site["frames"]]
            for name in ("first", "second", "third"):
                if name in names and site[key]:
                    found[name] = found.get(name, 0) + site[key]
        return found
    assert held("peak_bytes") == pytest.approx({"first": 64 * MIB, "second": 120 * MIB}, rel=0.01)
    assert held("peak_blocks") == {"first": 1, "second": 3}
    assert held("live_bytes") == pytest.approx({"first": 64 * MIB, "third": 48 * MIB}, rel=0.01)
    assert {site["device"] for site in report["sites"]} == {0}
    (path,) = place.work.glob("*.json")
    shown = place.cachalot("show", "--peak", path).out
    assert re.search(r"Device 0 at its peak of 184 MiB: 184 MiB (± \d+ [KM]iB )?was held by 1 line of code", shown), shown
    assert re.search(rf"script\.py:{line_in(PEAK, 'cudaMalloc')} take\n", shown)


SAMPLE = LOAD + """
import random
random.seed(5)
kept = []
for i in range(1500):
    p = ctypes.c_void_p()
    assert cuda.cudaMalloc(ctypes.byref(p), random.choice((20000, 300000, 1 << 20, 5 << 20))) == 0
    kept.append(p)
    if len(kept) > 600:
        assert cuda.cudaFree(kept.pop(random.randrange(600))) == 0
"""


def test_a_sample_tells_its_error(place):
    """The estimate is right within five standard errors, and the error is one of a sample."""
    (place.work / "script.py").write_text(SAMPLE)
    done = place.run(sys.executable, place.work / "script.py", CACHALOT_SIM_CAPACITY="8G")
    assert done.code == 0, done.err
    report = place.only_report()
    held = sum(site["live_bytes"] for site in report["sites"])
    error = sum(site["live_error_bytes"] ** 2 for site in report["sites"]) ** .5
    true = report.totals["leaked_bytes"]
    assert 0 < error, report["sites"]
    assert abs(held - true) <= 5 * error + true / 1000
    asked = sum(site["allocations"] for site in report["sites"])
    assert 100 < asked and held > 0


def test_small_requests_are_hits_of_their_thread(place):
    """A sample leaves the thread its cache."""
    report = place.report("threads")
    counters = report["devices"][0]["counters"]
    assert counters["num_thread_hits"] > 0.8 * counters["num_hits"]
    assert all(site["live_bytes"] == 0 for site in report["sites"])


def test_a_leak_names_its_line(place):
    place.run("allocate_130", CACHALOT_SITES="1", CACHALOT_EVENTS="100")
    report = place.only_report()
    (leak,) = report["leaks"]
    site = report["sites"][leak["site"]]
    assert site["frames"][0].startswith("allocate_130+0x") and "libcachalot" not in str(site["frames"])
    assert report["modules"][site["native"][0]["module"]].endswith("/allocate_130")
    assert (site["live_bytes"], site["live_blocks"]) == (1000, 1)
    assert sum(site["allocations"] for site in report["sites"]) == report.totals["requests"]
    allocs = [row for row in report["events"]["rows"] if row["action"] == "alloc"]
    assert allocs[-1]["site"] == leak["site"] and None not in {row["site"] for row in allocs}
    blocks = [block for segment in report["devices"][0]["segments"] for block in segment["blocks"]]
    assert [block["site"] for block in blocks if block["state"] == "allocated"] == [leak["site"]]
    (path,) = place.work.glob("*.json")
    shown = place.cachalot("show", path).out
    assert re.search(r"Leaked: .*\n  1 block of 1000 bytes.*\n    at allocate_130!\w+\+0x", shown)
    if shutil.which("addr2line"):
        source = (HERE / "allocate.c").read_text().splitlines()
        (line,) = set(re.findall(r"    at allocate_130!\w+\+0x\w+ \(allocate.c:(\d+)\)", shown))
        assert "cudaMalloc(&again, 1000)" in source[int(line) - 1]


def must_run(python):
    if python != sys.executable and subprocess.run([python, "-c", ""], check=False).returncode:
        pytest.skip(f"{python} does not run")


@pytest.mark.parametrize("loader", ["CDLL", "PyDLL"])
@pytest.mark.parametrize("python", PYTHONS)
def test_lines_of_python(place, python, loader):
    must_run(python)
    _, report = run(place, STEPS.replace("CDLL", loader), python)
    path = str(place.work / "script.py")[-95:]
    def chain(line):
        return [f"{path}:{line_in(STEPS, 'cudaMalloc')} step", f"{path}:{line} main", f"{path}:{line_in(STEPS, 'main()', 2)} <module>"]
    for leak in report["leaks"]:
        frames = report["sites"][leak["site"]]["frames"]
        assert frames[:3] == chain(line_in(STEPS, "step(5)" if leak["requested_bytes"] == 5 else "step(1000"))
    shown = place.cachalot("show", next(place.work.glob("*.json"))).out
    assert f"    at {path}:{line_in(STEPS, 'cudaMalloc')} step\n" in shown


def line_in(script, text, which=1):
    return [i for i, line in enumerate(script.splitlines(), 1) if text in line][which - 1]


STATE = LOAD + """
import gc, threading
def take():
    p = ctypes.c_void_p()
    assert cuda.cudaMalloc(ctypes.byref(p), 1000) == 0
    assert cuda.cudaFree(p) == 0
class Node:
    def __del__(self):
        take()
def deep(n):
    if n:
        return deep(n - 1)
    take()
def catch():
    try:
        raise KeyError("kept")
    except KeyError as error:
        deep(20)
        assert sys.exc_info()[1] is error
        try:
            deep(3)
        finally:
            take()
def generate():
    while True:
        take()
        yield
def once(generator):
    deep(10); catch(); next(generator)
    node = Node(); node.itself = node; del node
    gc.collect(0)
def work(rounds):
    generator = generate()
    for _ in range(rounds):
        once(generator)
work(50)
gc.collect()
before = (sys.getallocatedblocks(), sys.getrefcount(deep.__code__), sys.getrefcount(take.__code__), gc.isenabled())
work(300)
gc.collect()
after = (sys.getallocatedblocks(), sys.getrefcount(deep.__code__), sys.getrefcount(take.__code__), gc.isenabled())
assert before[1:] == after[1:] and abs(after[0] - before[0]) < 50, (before, after)
gc.disable()
work(3)
assert not gc.isenabled()
gc.enable()
keeps = ctypes.PyDLL("libcudart.so.13")
def keep():
    for _ in range(300):
        p = ctypes.c_void_p()
        assert keeps.cudaMalloc(ctypes.byref(p), 3000) == 0 and keeps.cudaFree(p) == 0
threads = [threading.Thread(target=f, args=a) for f, a in [(work, (50,)), (keep, ()), (keep, ()), (work, (50,))]]
[t.start() for t in threads]
[t.join() for t in threads]
print("good")
"""


@sanitizer.unless_sanitized("the interpreter is not")
@pytest.mark.parametrize("python", PYTHONS)
def test_nothing_of_python_is_changed(place, python):
    """References, exceptions, the collector: as they were, with the lock and without, deep down and in finalizers."""
    must_run(python)
    done, report = run(place, STATE, python)
    assert done.out == "good\n"
    assert all(site["live_bytes"] == 0 for site in report["sites"])
    assert any("deep" in str(site["frames"]) for site in report["sites"])


def test_a_sample(place):
    _, report = run(place, LOAD + """
for i in range(1000):
    cuda.cudaMalloc(ctypes.byref(pointer), 512)
""", sites="10")
    assert report["sites_every"] == 10
    taken = sum(site["allocations"] for site in report["sites"])
    assert 99 <= taken <= 101 and taken == sum(site["live_blocks"] for site in report["sites"])
    assert "(one request of 10 was looked at)" in place.cachalot("show", next(place.work.glob("*.json"))).out


def test_more_sites_than_there_is_room_for(place):
    _, report = run(place, LOAD + """
def take():
    cuda.cudaMalloc(ctypes.byref(pointer), 512)
for i in range(1500):
    exec(chr(10) * i + "take()")
""")
    assert 900 < len(report["sites"]) <= 1024 and report["sites_lost"] >= 476
    assert {len(site["frames"]) > 3 for site in report["sites"]} == {True}


def test_threads(place):
    """Each request takes the lock, and is counted and noted."""
    place.run("threads", CACHALOT_SITES="1", CACHALOT_EVENTS="100000")
    report = place.only_report()
    assert sum(site["allocations"] for site in report["sites"]) == 16000
    assert all((site["live_bytes"], site["live_blocks"]) == (0, 0) for site in report["sites"])
    rows = [row for row in report["events"]["rows"] if row["action"] in ("alloc", "free")]
    assert len(rows) == 32000 and None not in {row["site"] for row in rows}
    assert {block["site"] for segment in report["devices"][0]["segments"] for block in segment["blocks"]} == {None}


def test_after_a_kill(place):
    process = ready(place, "wait_for_input", CACHALOT_SITES="1", CACHALOT_EVENTS="100")
    process.kill()
    process.wait()
    (report,) = place.harvest()
    held = [site for site in report["sites"] if site["live_blocks"]]
    assert [(site["live_bytes"], site["live_blocks"]) for site in held] == [(1000, 1)]
    assert "Held by call sites:\n  1000 B in 1 block\n    at wait_for_input!main" in place.cachalot(
        "show", next(place.work.glob("*.json"))).out


def test_out_of_memory_names_its_line(place):
    script = LOAD + """
def too_much():
    print(cuda.cudaMalloc(ctypes.byref(pointer), 80 << 20))
too_much()
"""
    done, report = run(place, script, CACHALOT_SIM_CAPACITY="64M", CACHALOT_EVENTS="10")
    (event,) = report["oom_events"]
    assert done.out == "2\n" and event["asked_bytes"] == 80 * MIB
    line = f"script.py:{line_in(script, '80 << 20')} too_much"
    assert report["sites"][event["site"]]["frames"][0].endswith(line)
    assert report["sites"][report["events"]["rows"][-1]["site"]]["frames"][0].endswith(line)
    assert line in place.cachalot("show", next(place.work.glob("*.json"))).out.split("Out of memory")[1]


def test_hostile_names(place):
    script = LOAD + """
name = "a\\x1b[2J\\nfake.py:1 line\\udcff\\u202e" + "x" * 500
code = compile("def \\u00e4\\u00e4(): cuda.cudaMalloc(ctypes.byref(pointer), 512)" + chr(10) + "\\u00e4\\u00e4()", name, "exec")
exec(code)
"""
    _, report = run(place, script)
    (path,) = place.work.glob("*.json")
    shown = place.cachalot("show", path)
    assert shown.code == 0 and "\x1b" not in shown.out and "\u202e" not in shown.out
    assert not any(frame.startswith("fake.py") for site in report["sites"] for frame in site["frames"])


def test_files_that_are_gone_or_not_elf(place):
    """Names come from files that the report says: any may be missing, or be something else."""
    place.run("allocate_130", CACHALOT_SITES="1")
    (path,) = place.work.glob("*.json")
    text = path.read_text()
    for module in ("/nowhere/x", "/dev/zero", str(path), "/proc/self/mem", "", "\\u0000", "/"):
        path.write_text(re.sub(r'"/[^"]*/allocate_130"(?=,\n)', lambda _, to=module: f'"{to}"', text))
        shown = place.cachalot("show", path)
        assert shown.code == 0 and "Traceback" not in shown.err, shown.err
    path.write_text(re.sub(r'"module": \d+', '"module": 999', text))
    assert place.cachalot("show", path).code == 0
    assert isinstance(Report(load(path)), Report)


@pytest.mark.parametrize("value", ["yes", "-1", "1.5", "99999999999"])
def test_what_is_no_number(place, value):
    report = place.report("allocate_130", CACHALOT_SITES=value)
    assert report.warned("CACHALOT_SITES is not understood") == 1 and report["sites_every"] is None
