"""Recording a trace (CACHALOT_TRACE): whole at the end, after a kill, on a full disk; replayed with the same peaks."""

import gzip
import json
import os
import pathlib
import resource
import signal
import struct
import subprocess
import sys

import pytest
import sanitizer

from conftest import MIB, PROGRAMS, ROOT, SIM, WORKLOADS, Report, load, stop
from test_events import check_story, completed
from test_requests import each, ready, wait_for

sys.path.insert(0, str(ROOT / "scripts"))
from cachalot_command.reading import recorded  # noqa: E402
from cachalot_command.reading import traces  # noqa: E402

ORDINARY = "expandable_segments:False,idle_return_s:off"  # handles of mapped memory, and what is idle for long, depend on the pace
PEAKS = ("requested_bytes", "allocated_bytes", "reserved_bytes")
MORE_BY_CACHES = 4 * 2 * MIB  # of small segments; test/unit/test_traces.py has the bound too


def rows_of(path):
    header, rows = traces.recorded_events(path)
    return header, completed(list(rows))


def replay(place, path, *arguments, said="", perhaps=None):
    conf = () if "--conf" in arguments else ("--conf", ORDINARY)
    done = place.cachalot("replay", path, "--format", "json", *conf, *arguments)
    expected = bool(said) == bool(done.err) or (perhaps and perhaps in done.err)
    assert done.code == 0 and said in done.err and expected, done.err
    return json.loads(done.out)


def same_peaks(report, replayed, conf="", under_way=0):
    """What was reserved is the same to the byte without thread caches, which a replay has not; with several of them
    the report says by how much its peaks may be wrong. under_way: operations counted, and not recorded when the
    kill came."""
    wrong = report["devices"][0]["counters"]["peak_uncertainty_bytes"]
    for name in PEAKS:
        was, now = (one["devices"][0]["memory_stats"][f"{name}.all.peak"] for one in (report, replayed))
        more = MORE_BY_CACHES if name == "reserved_bytes" and "thread_cache:off" not in conf else 0
        assert now - wrong <= was <= now + wrong + more, name
    missing = [report.totals[what] - replayed["totals"][what] for what in ("requests", "frees")]
    assert min(missing) >= 0 and sum(missing) <= under_way


def dump(place, process):
    return Report(load(place.cachalot("dump", process.pid).out.strip()))


def wait_for_end(place, process):
    """Until the trace is given up."""
    while not dump(place, process).warned("the trace ends here"):
        assert process.poll() is None


@pytest.mark.parametrize("conf", [
    f"{ORDINARY},thread_cache:off", ORDINARY, f"{ORDINARY},roundup_power2_divisions:4,max_split_size_mb:20"])
@pytest.mark.parametrize("program", ["train_loop", "seed1_activations", "seed4a_holes", "seed5_vgg16"])
def test_replay_has_the_peaks_of_the_run(place, program, conf):
    done = place.cachalot("run", "--trace", "%e.trace", "--conf", conf, WORKLOADS / program,
                          LD_LIBRARY_PATH=SIM)
    assert done.code == 0, done.err
    report = place.only_report()
    assert report["warnings"] == [] and "events" not in report and report["devices"][0]["segments"] is None
    same_peaks(report, replay(place, f"{program}.trace", "--conf", conf), conf)
    header, rows = rows_of(place.work / f"{program}.trace")
    assert header.note() is None and header.pid == report["process"]["pid"]
    assert header.events == len(rows) and len(check_story(rows)) == report.statistic("allocation")


def test_what_was_out_of_memory_is_so_again(place):
    """And `tune` finds what would have served it."""
    conf = f"{ORDINARY},memory_limit_mb:8192"
    place.cachalot("run", "--trace", "t", "--conf", conf, WORKLOADS / "seed4b_tenants", LD_LIBRARY_PATH=SIM)
    (was,), (now,) = (one["oom_events"] for one in (place.only_report(), replay(place, "t", "--conf", conf)))
    for name in ("requested_bytes", "allocated_bytes", "reserved_bytes", "native_would_fit"):
        assert was[name] == now[name], name
    found = json.loads(place.cachalot("tune", "t", "--capacity", "8GiB", "--format", "json").out)
    assert found["best"][0]["ooms"] == 0
    assert replay(place, "t", "--capacity", "8GiB", "--conf", found["best"][0]["conf"])["totals"]["ooms"] == 0


def test_many_threads_and_a_ring_many_times_over(place):
    """The ring of 65536 events is filled more than once; none is lost, all are in order."""
    report = place.report("threads", CACHALOT_TRACE="t", CACHALOT_EVENTS="64")
    header, rows = rows_of(place.work / "t")
    assert len(rows) == header.events and check_story(rows) == {}
    assert report["events"]["capacity"] == 64 and rows[-64:] == [
        {**row, "time_ns": rows[i - 64]["time_ns"]} for i, row in enumerate(completed(report["events"]["rows"]))]
    same_peaks(report, replay(place, "t"))
    process = ready(place, CACHALOT_TRACE="long")
    wait_for(lambda: os.path.getsize(place.work / "long") > 4096 + 48 * 140000)
    process.communicate("")
    header, rows = rows_of(place.work / "long")
    assert header.note() is None and len(rows) > 140000 and check_story(rows) == {}


def test_after_a_kill(place):
    process = ready(place, CACHALOT_TRACE="%e.trace")
    path = place.work / "allocate_on.trace"
    wait_for(lambda: path.stat().st_size > 4096 + 48 * 20000)
    process.kill()
    process.wait()
    before = replay(place, path, said="cut short")
    (place.work / "head").write_bytes(path.read_bytes()[:4096 + 48 * 1000])  # tune replays it some hundred times
    assert "cut short: it has 1000 of its" in place.cachalot("tune", "head").err
    (report,) = place.harvest()
    after = replay(place, path, perhaps="1 of its events are missing")  # killed as it was written
    same_peaks(report, after, under_way=1)
    assert after["trace"]["operations"] >= before["trace"]["operations"] > 10000
    check_story(rows_of(path)[1])


def test_the_last_event_was_never_written(place):
    """Its thread was killed when it had its place: the file is as long as its header says all the same."""
    process = ready(place, CACHALOT_TRACE="t", CACHALOT_CONF="thread_cache:off")
    wait_for(lambda: (place.work / "t").stat().st_size > 4096 + 48 * 5000)
    process.kill()
    process.wait()
    (page,) = place.pages.glob("*.page")
    data, header = bytearray(page.read_bytes()), rows_of(place.work / "t")[0]
    at = data.index(struct.pack("<2Q", 65536, header.begin_ns)) - 96  # stats/events/events.h: capacity, begin_ns; and where `count` is
    (count,) = struct.unpack_from("<Q", data, at)
    struct.pack_into("<Q", data, at, count + 1)
    page.write_bytes(data)
    assert len(place.harvest()) == 1
    header, rows = rows_of(place.work / "t")
    assert (header.state, header.events, len(rows)) == (recorded.ENDED, count + 1, count)
    assert replay(place, "t", said="1 of its events are missing")["trace"]["lines"] == count + 1


@pytest.mark.parametrize("way", ["kill", "_exit", "segv", "quick_exit", "exit from a thread"])
def test_ends(place, way):
    place.run("end", way, CACHALOT_TRACE="t")
    report = (place.reports() or place.harvest())[0]
    replayed = replay(place, "t")
    assert replayed["totals"]["requests"] == report.totals["requests"] >= 2


def test_a_trace_that_is_cut_off(place):
    place.report("threads", CACHALOT_TRACE="t")
    whole = (place.work / "t").read_bytes()
    (place.work / "t.gz").write_bytes(gzip.compress(whole))
    assert replay(place, "t.gz")["trace"] == {**replay(place, "t")["trace"], "name": "t.gz"}
    for length, said in ((4096 + 48 * 1000 + 17, "event 1001: the file ends here"), (len(whole) - 1, "ends here"), (4096, "event 1: the file ends here"), (3000, "cut off in its header"), (15, "line 1")):
        (place.work / "cut").write_bytes(whole[:length])
        done = place.cachalot("replay", "cut")
        assert done.code == 3 and said in done.err and "Traceback" not in done.err
    damaged = bytearray(whole)
    damaged[4096 + 48 * 7] ^= 64
    (place.work / "cut").write_bytes(damaged)
    done = place.cachalot("replay", "cut")
    assert done.code == 3 and "event 8: not the event of this place" in done.err
    damaged = bytearray(whole)
    damaged[16] = 9
    (place.work / "cut").write_bytes(damaged)
    assert "another version" in place.cachalot("replay", "cut").err


def test_two_processes_of_one_run(place):
    done = place.cachalot("run", "--summary", "--trace", "t", "/bin/sh", "-c",
                          f"{PROGRAMS}/allocate_130 & {PROGRAMS}/allocate_static & wait")
    assert done.code == 0
    reports = place.reports()
    assert sum(report.warned("is taken: traced in") for report in reports) == 1
    paths = sorted(place.work.glob("t*"))
    assert len(paths) == 2 and paths[0].name == "t"
    assert {rows_of(path)[0].pid for path in paths} == {report["process"]["pid"] for report in reports}


def test_a_trace_lies_where_the_run_stood(place):
    """Wherever the program goes: a relative name is the caller's."""
    done = place.cachalot("run", "--trace", "t", "/bin/sh", "-c", f"cd /; exec {PROGRAMS}/allocate_130")
    assert done.code == 0 and len(rows_of(place.work / "t")) > 0


def test_an_older_trace_is_replaced_and_nothing_else(place):
    (place.work / "t").write_bytes(b"")
    for _ in range(2):
        place.run("allocate_130", CACHALOT_TRACE="t")
    assert [path.name for path in place.work.glob("t*")] == ["t"]
    (place.work / "t").write_text("my work of a year")
    report = place.run("allocate_130", CACHALOT_TRACE="t") and place.reports()[-1]
    assert (place.work / "t").read_text() == "my work of a year"
    assert replay(place, f"t.{report['process']['pid']}")["totals"]["requests"] == report.totals["requests"]


def test_a_trace_of_another_host_stays(place):
    """On a shared disk: nobody can know here whether its process lives."""
    path = place.work / "t"
    for here in (True, False):
        place.run("end", "kill", CACHALOT_TRACE="t")
        data = bytearray(path.read_bytes())
        assert data[176:248].rstrip(b"\0") == os.uname().nodename.encode()
        data[176:] = data[176:] if here else b"other" + data[181:]
        path.write_bytes(data)
        place.run("allocate_130", CACHALOT_TRACE="t")
        assert (path.read_bytes() == data) != here
    assert len(list(place.work.glob("t.*"))) == 1


@pytest.mark.parametrize("trace, said", [
    ("/proc/nowhere/t", "nothing is traced"), ("/dev/full/t", "nothing is traced"), ("there/", "ends with a slash"),
    ("%x", "unknown %"), ("x" * 250, "too long"), ("/dev/full", "full: Invalid argument"), (".", ".: Is a directory")])
def test_where_no_trace_can_be(place, trace, said):
    report = place.report("allocate_130", CACHALOT_TRACE=trace)
    assert report.warned("nothing is traced" if ": " in said else "trace" if "trace" in said else "CACHALOT_TRACE") == 1, report.warnings
    assert report.warned(said) == 1
    for path in place.work.iterdir():
        assert path.name.startswith("cachalot.")
    assert not list(pathlib.Path("/dev").glob("full.*"))


def test_hostile_names(place):
    name = "a\nb\x1b[2J$(id) '\"%%.trace"
    report = place.report("allocate_130", CACHALOT_TRACE=f"new dir/{name}")
    (path,) = (place.work / "new dir").iterdir()
    assert "\n" not in path.name and "\x1b" not in path.name and path.name.endswith("%.trace")
    assert replay(place, path)["totals"]["requests"] == report.totals["requests"]


def test_a_limit_for_files(place):
    """RLIMIT_FSIZE would kill the program: the trace ends before."""
    process = ready(place, CACHALOT_TRACE="t",
                    prepare=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4 * MIB, 4 * MIB)))
    wait_for_end(place, process)
    out, _ = process.communicate("")
    assert (process.returncode, out) == (0, "cudaGetLastError(): 0\n")
    report = place.reports()[-1]
    assert report.warned("the trace ends here: File too large") == 1
    replay(place, "t", said="the recording ended early")


@pytest.mark.parametrize("way", ["full", "replaced"])
def test_the_disk(place, way):
    """A small file system that fills up; a file that somebody replaces or cuts off under us."""
    small = place.work / "small"
    small.mkdir()
    if way == "full" and subprocess.run(["mount", "-t", "tmpfs", "-o", "size=500k", "tmpfs", small], check=False,
                                        stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        process = ready(place, CACHALOT_TRACE=small / "t", CACHALOT_EVENTS="1000")
        if way == "replaced":
            wait_for(lambda: os.path.getsize(small / "t") > 10000)
            (small / "t").write_bytes(b"")  # wherever it is just then: the first cut is noticed
        wait_for_end(place, process)
        wait_for(lambda: dump(place, process).totals["requests"] > 1024)
        out, err = process.communicate("")
        assert (process.returncode, out, err) == (0, "cudaGetLastError(): 0\n", "")
        report = place.reports()[-1]
        assert report.warned("No space left" if way == "full" else "replaced or cut off") == 1
        assert len(report["events"]["rows"]) == 1024  # the ring goes on
        if way == "full":
            read = replay(place, small / "t", said="the recording ended early")
            assert 1000 < read["trace"]["operations"] < 500 * 1024 / 48
        else:
            rest = (small / "t").read_bytes()  # a cut just before the header was written leaves that, and no event
            assert rest == b"" or rest.startswith(b"CACHALOT-TRACE\n") and len(rest) < 4096
    finally:
        if way == "full":
            subprocess.run(["umount", small], check=True)


def copy_onto(path, length):
    """As `cp` does: the file stays, its content is somebody's."""
    data = os.urandom(length)
    with open(path, "r+b") as file:
        file.write(data)
        file.truncate()
    return data


def test_what_was_copied_onto_it_stays(place):
    """But for what may be written between a look and the next: one time of two hundred."""
    for trace in "tuv":
        process = ready(place, CACHALOT_TRACE=trace)
        wait_for(lambda path=place.work / trace: os.path.getsize(path) > 10000)
        stop(process)
        data = copy_onto(place.work / trace, 40 * MIB)
        process.send_signal(signal.SIGCONT)
        wait_for_end(place, process)
        process.communicate("")
        assert place.reports()[-1].warned("replaced or cut off") == 1
        if (place.work / trace).read_bytes() == data:
            return
    raise AssertionError("what was copied onto it was changed, three times")


@pytest.mark.parametrize("what", ["a file of mine", "another run's"])
def test_what_took_its_place_stays(place, what):
    """What a killed process had not written goes into its own file or nowhere: inodes come again."""
    process = ready(place, CACHALOT_TRACE="t")
    wait_for(lambda: os.path.getsize(place.work / "t") > 10000)
    process.kill()
    process.communicate()
    if what == "a file of mine":
        copy_onto(place.work / "t", 40 * MIB)
    else:
        place.run("allocate_130", CACHALOT_TRACE="u")
        with open(place.work / "t", "r+b") as file, open(place.work / "u", "rb") as other:
            file.write(other.read())
    data = (place.work / "t").read_bytes()
    done = place.cachalot("harvest", "--output", "late.json")
    assert (done.code, done.out) == (1, "late.json\n") and "replaced or cut off" in done.err
    assert (place.work / "t").read_bytes() == data and place.cachalot("ls").out.startswith("no program")


def fill(folder):
    with open(folder / "rest", "wb") as rest, pytest.raises(OSError, match="No space left"):
        while True:
            os.write(rest.fileno(), bytes(4096) if os.statvfs(folder).f_bavail < 2048 else bytes(MIB))


@sanitizer.unless_sanitized("too slow: what is left to write has room in the file's last page", ("tsan",))
def test_a_full_disk_loses_nothing_of_a_killed_process(place):
    small = place.work / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", small], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        for name in "abcde":  # one may be stopped when all is written but what that page has room for
            process = ready(place, CACHALOT_TRACE=small / name)
            wait_for(lambda path=small / name: os.path.getsize(path) > 10000)
            stop(process)
            fill(small)
            process.kill()
            process.communicate()
            (place.work / "late.json").unlink(missing_ok=True)  # of the one before
            done = place.cachalot("harvest", "--output", "late.json")
            (small / "rest").unlink()
            if done.code:
                break
        assert (done.code, done.out) == (1, "late.json\n") and "No space left" in done.err and "the page keeps it" in done.err
        done = place.cachalot("harvest", "--output", "late.json")
        assert done.code == 0, done.err
        report = Report(json.loads((place.work / "late.json").read_text()))
        same_peaks(report, replay(place, small / name), under_way=2)
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.parametrize("length", [0, 4096 + 48 * 1000 + 17])
def test_a_cut_between_look_and_write(place, length):
    """The file is as long as before, with a hole in it: so a cut looks that a write has followed."""
    process = ready(place, CACHALOT_TRACE="t")
    wait_for(lambda: os.path.getsize(place.work / "t") > 4096 + 48 * 5000)
    stop(process)
    size = os.path.getsize(place.work / "t")
    os.truncate(place.work / "t", length)
    os.truncate(place.work / "t", size)
    process.send_signal(signal.SIGCONT)
    wait_for_end(place, process)
    process.communicate("")
    assert place.reports()[-1].warned("replaced or cut off") == 1
    assert os.path.getsize(place.work / "t") <= size


def test_devices(place):
    report = place.report("devices_130", CACHALOT_TRACE="t", CACHALOT_SIM_DEVICES="3")
    for device in (0, 1, 2):
        read = place.cachalot("replay", "t", "--format", "json", "--device", device, "--conf", ORDINARY)
        peak = report["devices"][device]["memory_stats"]["allocated_bytes.all.peak"]
        assert json.loads(read.out)["devices"][0]["memory_stats"]["allocated_bytes.all.peak"] == peak
        assert read.err == ""
    for command in ("replay", "tune"):
        assert place.cachalot(command, "t").err.count("choose with --device") == 1
    assert "no event of device 7" in place.cachalot("tune", "t", "--device", "7").err


def test_nothing_stays_open_and_nothing_is_left_in_a_child(place):
    process = ready(place, "wait_for_input", CACHALOT_TRACE="t")
    wait_for(lambda: not [link for link in each(process.pid, "fd", os.readlink) if link.endswith("/t")])
    wait_for(lambda: {"cachalot", "cachalot-trace"} <= set(
        each(process.pid, "task", lambda path: (path / "comm").read_text().strip())))
    process.communicate("\n")
    place.run("end_of_children", CACHALOT_TRACE="%p.trace")
    for path in place.work.glob("*.trace"):
        rows_of(path)
