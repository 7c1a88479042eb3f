"""cachalot check, and run --check: gates on one report and on many."""

import copy
import json
import os
import pathlib
import shlex
import subprocess
import threading
import time

from cachalot_command.reading import report as report_module
import pytest
from conftest import COMMAND, built

FORMATS = ("text", "github", "junit", "json", "openmetrics")
MIB = 1 << 20


@pytest.mark.parametrize("gate, totals, code", [
    ("--max-leaked 0", {"leaked_bytes": 0}, 0),
    ("--max-leaked 0", {"leaked_bytes": 1}, 1),
    ("--max-leaked 1KiB", {"leaked_bytes": 1024}, 0),
    ("--max-leaked 1KB", {"leaked_bytes": 1024}, 1),
    ("--max-leaked 1G", {"leaked_bytes": None}, 1),
    ("--max-oom 0", {"ooms": 0}, 0),
    ("--max-oom 0", {"ooms": 1}, 1),
    ("--max-peak-reserved 8GiB", {"peak_reserved_bytes": 8 << 30}, 0),
    ("--max-peak-reserved 8GiB", {"peak_reserved_bytes": (8 << 30) + 1}, 1),
    ("--max-peak-allocated 1.5KiB", {"peak_allocated_bytes": 1536}, 0),
    ("--max-peak-allocated 1.5KiB", {"peak_allocated_bytes": 1537}, 1),
    ("--min-utilization 0.9", {"peak_utilization_ratio": 0.9}, 0),
    ("--min-utilization .9", {"peak_utilization_ratio": 0.899}, 1),
    ("--max-peak-allocated .5KiB", {"peak_allocated_bytes": 512}, 0),
    ("--min-utilization 90%", {"peak_utilization_ratio": 0.899}, 1),
    ("--min-utilization 0", {"peak_utilization_ratio": None}, 1),
    ("--min-hits 50%", {"hit_ratio": 0.5}, 0),
    ("--min-hits 50%", {"hit_ratio": 0.4}, 1),
    ("--max-retries 2", {"alloc_retries": 3}, 1),
    ("--max-double-frees 0", {"double_frees": 1}, 1),
    ("--max-warnings 2", {"warnings": 2}, 0),
    ("--max-warnings 1", {"warnings": 2}, 1),
    ("--require-reports 1", {}, 0),
    ("--require-reports 2", {}, 1),
    ("--require-coverage full", {}, 0),
])
def test_a_gate_holds_to_the_last_byte(run, gate, totals, code):
    run.add(**totals)
    assert run.check(run.folder, *shlex.split(gate)).returncode == code
    assert run.check(run.folder, gate.replace(" ", "=")).returncode == code


def test_a_failed_gate_says_by_how_much_and_what_leaked(run):
    run.add(peak_reserved_bytes=8 * MIB + 1, rank=3)
    done = run.check(run.folder, "--max-leaked", "0", "--max-peak-reserved", "8MiB")
    assert "FAIL max-peak-reserved (at most 8192 KiB): 8192 KiB of all device memory (rank 3, make_page pid 1001" \
        in done.stdout
    assert "; 1 byte too many" in done.stdout and "on device 0 still allocated" in done.stdout
    assert done.stdout.endswith("failed: 2 of 3 gates\n") and done.stderr == ""


def test_a_leak_says_where_and_whether_the_process_was_killed(run, model):
    model = run.model = copy.deepcopy(model)
    run.add()
    hints = run.gates(run.folder, "--max-leaked", "0")[1]["gates"][1]["hints"]
    assert hints[-1] == "Next: run it with CACHALOT_SITES=1, then the lines that asked for it are named"
    model["sites"] = [{"frames": ["train.py:31 step"]}]
    model["leaks"] = [{"device": 0, "requested_bytes": size, "up_to_bytes": None, "count": i, "rest": False, "site": 0}
                      for i, size in ((1, 64 * MIB), (2, 1000))]
    model["exit"] = {"reason": "signal", "code": None, "signal": 11, "clean": False}
    run.add(rank=1, leaked_bytes=99 * MIB)
    verdict = run.gates(run.folder, "--max-leaked", "0")[1]
    assert verdict["gates"][1]["hints"] == [
        "1 block of 64 MiB (67108864 bytes) on device 0 still allocated", "2 blocks of 1000 bytes on device 0 still allocated",
        "it was ended by signal 11 (SIGSEGV): what it held then counts as leaked", "at train.py:31 step"]
    assert any(note.endswith("was ended by signal 11 (SIGSEGV)") for note in verdict["notes"])


def test_out_of_memory_is_explained(run, model):
    model = copy.deepcopy(model)
    model["oom_events"] = [{
        "number": 0, "time_ns": 1, "device": 1, "requested_bytes": 1000 * MIB,
        "allocated_bytes": 5936 * MIB, "active_bytes": 0, "reserved_bytes": 8324 * MIB,
        "reusable_bytes": 0, "largest_allocatable_bytes": 400 * MIB, "device_free_bytes": 3 * MIB,
        "memory_limit_bytes": 0, "native_would_fit": True}]
    run.model = model
    run.add(ooms=1)
    out = run.check(run.folder, "--max-oom", "0").stdout
    assert "device 1: The program asked for 1000 MiB while 5.8 GiB were allocated and 8.13 GiB reserved" in out
    assert "for one request 400 MiB" in out and "fragmentation stood in the way" in out
    assert "Next: run it with CACHALOT_SITES=1" in out
    model["oom_events"][0].update(explanation="What the library says", would_serve=["a:1", "b:2"], site=1)
    model["sites"] = [{"frames": ["x.py:1 f"]}, {"frames": ["libcudart-9f92e4c3.so.13.3.29+0x1", "libcudart.so.13+0x1", "train.py:31 step", "train.py:40 main"]}]
    model["leaks"][0]["site"] = 0
    run.add(ooms=2)
    hints = {g["gate"]: g["hints"] for g in run.gates(run.folder, "--max-oom", "0", "--max-leaked", "0")[1]["gates"]}
    assert hints["max-oom"] == ["device 1: What the library says. Would have served it: CACHALOT_CONF=a:1 or b:2",
                                "at train.py:31 step, called by train.py:40 main"]


def test_many_ranks_are_judged_together(run):
    for rank, size in enumerate((100, 101, 180, 99)):
        run.add(rank=rank, peak_reserved_bytes=size * MIB, leaked_bytes=rank)
    code, verdict = run.gates(run.folder, "--max-peak-reserved", "150MiB", "--max-spread", "10%",
                              "--max-leaked", "sum:5", "--max-peak-reserved", "sum:480MiB")
    by_name = {(g["gate"], g["limit"]): g for g in verdict["gates"]}
    each = by_name["max-peak-reserved", "150 MiB"]
    assert code == 1 and (each["value"], each["failed"]) == (180 * MIB, 1)
    assert each["process"].startswith("rank 2,")
    assert by_name["max-peak-reserved", "480 MiB in sum"]["passed"] is True
    assert by_name["max-leaked", "5 B in sum"]["value"] == 6
    assert by_name["max-spread", "10.00 %"]["hints"][0].startswith("odd one: rank 2,")
    total = verdict["peak_reserved_bytes"]
    assert (total["max"], total["min"], total["sum"]) == (180 * MIB, 99 * MIB, 480 * MIB)
    assert total["odd_process"].startswith("rank 2,") and total["spread_ratio"] == 0.45
    out = run.check(run.folder, "--max-oom", "0").stdout
    assert "most 180 MiB (rank 2," in out and "sum 480 MiB, spread 45.0 %" in out


@pytest.mark.parametrize("ranks, said", [
    ((0, 1, 3), "there is no report of rank 2: "), ((0, 20), "of rank 1, 2, 3, 4, 5, 6, 7, 8, …: "), ((0, 1), None), ((7,), None),
    ((0, "1"), None), ((0, 10**9), None), ((0, -5), None)])
def test_a_rank_that_is_missing_is_named(run, ranks, said):
    for rank in ranks:
        run.add(rank=rank)
    notes = run.gates(run.folder, "--max-oom", "0")[1]["notes"]
    assert (said is None and not notes) or said in notes[0]


@pytest.mark.parametrize("gates", [
    ("--require-coverage full", "--require-coverage none"), ("--require-reports 3", "--require-reports 1"),
    ("--max-spread 10%", "--max-spread 90%"), ("--baseline old.json --max-increase 5%", "--max-increase 900%")])
def test_of_conflicting_gates_all_apply(run, gates):
    run.add(coverage="partial", peak_reserved_bytes=100)
    run.add(peak_reserved_bytes=150)
    run.add("old.json", run.work, peak_reserved_bytes=100)
    for one, other in (gates, gates[::-1]):
        done = run.check(run.folder, *one.split(), *other.split())
        assert done.returncode == 1 and done.stdout.count("FAIL") == 1, done.stdout


def test_spread_of_one_process_is_no_spread(run):
    run.add()
    assert run.check(run.folder, "--max-spread", "50%").returncode == 1


@pytest.mark.parametrize("status, required, requests, code", [
    ("none", None, 0, 1), ("none", None, 5, 1), ("none", "none", 0, 0),
    ("partial", None, 0, 1), ("partial", None, 5, 0), ("partial", "full", 5, 1),
    ("partial", "none", 0, 0), ("full", None, 0, 1), ("full", "full", 0, 1),
    ("full", "none", 0, 0), ("full", "full", 5, 0)])
def test_nothing_intercepted_is_never_well(run, status, required, requests, code):
    run.add(coverage=status, requests=requests, leaked_bytes=0)
    more = ("--require-coverage", required) if required else ()
    done = run.check(run.folder, "--max-leaked", "0", *more)
    assert done.returncode == code, done.stdout
    assert code == 0 or "FAIL coverage" in done.stdout


def test_one_process_that_went_past_the_cache_fails_all(run):
    run.add(leaked_bytes=0)
    run.add(leaked_bytes=0, coverage="partial", requests=0)
    done = run.check(run.folder, "--max-leaked", "0")
    assert done.returncode == 1 and "FAIL coverage (at least partial): partial" in done.stdout
    assert "       - a reason\n" in done.stdout and "       - The figures leave out what went past" in done.stdout


def test_memory_taken_past_the_cache_is_named(run):
    path = run.add(requests=0)
    report = json.loads(path.read_text())
    report["others"]["vmm"]["peak_bytes"] = 3 << 30
    path.write_text(json.dumps(report))
    done = run.check(path, "--max-oom", "0")
    assert done.returncode == 1 and "past the cache: vmm 3 GiB" in done.stdout


@pytest.mark.parametrize("gate, code, said", [
    ("--max-leaked 0", 1, "4096 KiB of all device memory: device 1024 KiB, stream_ordered 1024 KiB, vmm 2048 KiB (make_page"),
    ("--max-leaked 4MiB", 0, "4096 KiB of all device memory: device 1024 KiB"), ("--max-leaked device=1MiB", 0, "1024 KiB of device memory"),
    ("--max-leaked vmm=1MiB", 1, "FAIL max-leaked vmm (at most 1024 KiB): 2048 KiB of vmm memory (make_page"),
    ("--max-leaked vmm=2MiB", 0, ""), ("--max-leaked pinned=8MiB", 0, ""), ("--max-leaked pinned=8388607", 1, "; 1 byte too many"),
    ("--max-leaked sum:pinned=8MiB", 0, "8192 KiB of pinned memory in 1 process"), ("--max-leaked managed=0", 0, ""),
    ("--max-peak-reserved vmm=5MiB", 0, "5120 KiB of vmm memory"), ("--max-peak-allocated vmm=5242879", 1, ""),
    ("--max-peak-reserved 9MiB", 0, "9216 KiB of all device memory: device 2048 KiB, stream_ordered 2048 KiB, vmm 5120 KiB"),
    ("--max-peak-reserved 9437183", 1, ""), ("--max-peak-allocated 8MiB", 0, "")])
@pytest.mark.parametrize("is_older", [False, True])
def test_a_gate_judges_the_kind_it_names(run, gate, code, said, is_older):
    """All device memory without a name; older reports have only `others`."""
    path = run.add(leaked_bytes=MIB, peak_reserved_bytes=2 * MIB, peak_allocated_bytes=MIB, requests=1)
    report = json.loads(path.read_text())
    for row, (held, most) in {"vmm": (2, 5), "host": (8, 9), "pool": (1, 2)}.items():
        report["others"][row].update(bytes=held * MIB, peak_bytes=most * MIB)
    if is_older:
        del report["kinds"]
        report["leaks"] = [{key: value for key, value in leak.items() if key != "kind"} for leak in report["leaks"]]
    path.write_text(json.dumps(report))
    done = run.check(path, *shlex.split(gate))
    assert (done.returncode, done.stderr) == (code, "") and said in done.stdout, done.stdout
    assert run.check(path, gate.replace(" ", "=")).returncode == code


def test_what_only_the_driver_served_is_judged_by_the_books_alone(run):
    path = run.add(requests=0, leaked_bytes=0, peak_reserved_bytes=0, peak_allocated_bytes=0)
    report = json.loads(path.read_text())
    report["others"]["vmm"].update(bytes=MIB, peak_bytes=3 * MIB)
    path.write_text(json.dumps(report))
    assert run.check(path, "--max-leaked", "vmm=1MiB", "--max-peak-reserved", "3MiB").returncode == 0
    assert run.check(path, "--max-leaked", "0").returncode == 1
    assert "nothing was judged" in run.check(path, "--max-leaked", "vmm=1MiB", "--max-oom", "0").stdout


@pytest.mark.parametrize("gate, said", [
    ("--max-leaked=pined=0", "`pined` is no kind of memory; the kinds are device, stream_ordered"), ("--max-leaked==0", "`` is no kind"),
    ("--max-oom=vmm=0", "`vmm=0` is not a limit"), ("--max-leaked=vmm=", "--max-leaked: "), ("--max-leaked=vmm=x", "--max-leaked: ")])
def test_a_kind_that_is_none(run, gate, said):
    done = run.check(run.add(), gate)
    assert done.returncode == 2 and said in done.stderr


@pytest.mark.parametrize("value", [-1, 1.5, 1e300])
def test_a_damaged_figure_of_a_kind_is_no_pass(run, value):
    path = run.add(leaked_bytes=0)
    report = json.loads(path.read_text())
    report["others"]["vmm"]["bytes"] = value
    path.write_text(json.dumps(report))
    done = run.check(path, "--max-leaked", "0")
    assert done.returncode == 3 and "`others` has" in done.stdout


def test_a_process_that_only_looked_at_the_gpu_is_no_odd_one(run):
    for _ in range(3):
        run.add(leaked_bytes=0)
    run.add(requests=0, hits=0, hit_ratio=None, peak_reserved_bytes=0,
            peak_utilization_ratio=None, leaked_bytes=0)
    code, verdict = run.gates(run.folder, "--min-utilization", "1%", "--min-hits", "1%",
                              "--max-spread", "0")
    assert code == 0 and verdict["peak_reserved_bytes"]["processes"] == 3


@pytest.mark.parametrize("key, old, new, increase, code", [
    ("peak_reserved_bytes", 100, 105, "5%", 0), ("peak_reserved_bytes", 100, 106, "5%", 1),
    ("peak_reserved_bytes", 100, 106, None, 1), ("peak_reserved_bytes", 100, 250, "200%", 0),
    ("peak_allocated_bytes", 1000, 1051, "0.05", 1), ("leaked_bytes", 0, 1, "900%", 1),
    ("leaked_bytes", 0, 0, "0", 0), ("leaked_bytes", 5, 4, "0", 0), ("ooms", 0, 1, "5%", 1),
    ("leaked_bytes", None, 4, "5%", 1), ("leaked_bytes", 4, None, "5%", 1),
    ("peak_reserved_bytes", 60 * MIB, 62 * MIB, "1%,2MiB", 0), ("peak_reserved_bytes", 60 * MIB, 62 * MIB + 1, "1%,2MiB", 1),
    ("peak_reserved_bytes", 60 * MIB, 62 * MIB + 1, "2MiB,5%", 0), ("peak_allocated_bytes", 100, 1124, "1KiB", 0),
    ("leaked_bytes", 0, 4, "5%,4B", 0), ("ooms", 0, 1, "5%,8MiB", 1)])
def test_against_a_baseline(run, key, old, new, increase, code):
    run.add(**{key: new})
    base = run.add("old.json", run.work, **{key: old})
    more = ("--max-increase", increase) if increase else ()
    done = run.check(run.folder, "--baseline", base, *more)
    assert done.returncode == code, done.stdout


def test_ranks_are_compared_with_their_own(run):
    old = run.work / "old"
    old.mkdir()
    for rank, (before, now) in enumerate(((100, 100), (50, 80))):
        run.add(rank=rank, peak_reserved_bytes=now)
        run.add(folder=old, rank=rank, peak_reserved_bytes=before)
    done = run.check(run.folder, "--baseline", old)
    assert done.returncode == 1 and "50 B to 80 B, +60.0 % (rank 1," in done.stdout
    run.add(rank=2, peak_reserved_bytes=1)  # not the same ranks any more: the most of each
    assert run.check(run.folder, "--baseline", old).returncode == 0


def test_a_bad_baseline_is_no_pass(run):
    path = run.add()
    assert run.check(path, "--baseline", path).returncode == 3
    assert run.check(path, "--baseline", "none.json").returncode == 3
    idle = run.add("idle.json", run.work, requests=0)
    done = run.check(path, "--baseline", idle)
    assert done.returncode == 1 and "of the baseline came through" in done.stdout
    empty = run.work / "empty"
    empty.mkdir()
    assert run.check(path, "--baseline", empty).returncode == 3


@pytest.mark.parametrize("arguments", [
    (), ("--max-leaked",), ("--max-leaked", "x"), ("--max-leaked", "-1"), ("--max-oom", "1.5"),
    ("--max-leaked", "gpu:0"), ("--max-oom", "gpu:0"),
    ("--max-oom", "sum:"), ("--max-leaked", "max:0"), ("--min-utilization", "sum:1"),
    ("--min-utilization", "5"), ("--min-utilization", "120%"), ("--max-increase", "5%"),
    ("--require-reports", "0"), ("--require-coverage", "most"), ("--max-spread", "x"),
    ("--max-leaked", "0", "--format", "yaml"), ("--else",), ("--max-leaked", "1" * 400),
    ("--max-leaked", "0", "--max-oom=x")])
def test_usage(run, arguments):
    path = run.add()
    done = run.check(path, *arguments)
    assert done.returncode == 2 and done.stderr.startswith("cachalot: ") and done.stdout == ""


def test_a_report_is_not_overwritten_by_its_verdict(run):
    path = run.add()
    (run.folder / "cut.json").write_text('{"schema_version": "1.0')
    for name in (path, run.folder / "cut.json"):
        was = name.read_bytes()
        done = run.check(path, run.folder / "cut.json", "--max-oom", "0", "--output", name)
        assert done.returncode == 2 and "no verdict" in done.stdout and "would be overwritten" in done.stderr
        assert name.read_bytes() == was


@pytest.mark.parametrize("growth", ["5", "5%,6%", "1MiB,2MiB", "5%,x", ",", "5%,", "5%,1MiB,2%"])
def test_an_increase_that_may_mean_two_things_is_refused(run, growth):
    path = run.add()
    base = run.add("b.json", run.work)
    assert run.check(path, "--baseline", base, "--max-increase", growth).returncode == 2


def test_the_worst_growth_is_one_that_fails(run):
    """A small figure grows by a large share, and may."""
    old = run.work / "old"
    old.mkdir()
    for rank, (before, now) in enumerate(((MIB, 3 * MIB), (1000 * MIB, 1100 * MIB))):
        run.add(rank=rank, peak_reserved_bytes=now)
        run.add(folder=old, rank=rank, peak_reserved_bytes=before)
    done = run.check(run.folder, "--baseline", old, "--max-increase", "5%,8MiB")
    assert "FAIL increase of peak_reserved_bytes (at most 5.00 % or 8192 KiB): 1000 MiB to 1100 MiB, +10.0 % (rank 1," in done.stdout


DAY = 86400


def of_run(run, session, begin, **more):
    """A report of a run that began so many seconds after some day."""
    path = run.add(process={"session": session}, **more)
    report = json.loads(path.read_text())
    report["time"].update(start=time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(DAY * 20000 + begin)), uptime_ns=10**10)
    path.write_text(json.dumps(report))
    return path


@pytest.mark.parametrize("sessions", [("1-2-a", "9-9-b"), (None, None), ("1-2-a", None), (None, "9-9-b")])
@pytest.mark.parametrize("bad", ["old", "new"])
def test_an_earlier_run_decides_nothing(run, sessions, bad):
    """It neither fails this one, nor makes up for what this one lacks."""
    for which, session, begin in zip(("old", "new"), sessions, (0, DAY)):
        of_run(run, session, begin, leaked_bytes=int(which == bad))
        of_run(run, session, begin + 1, leaked_bytes=0)
    done = run.check(run.folder, "--max-leaked", "0")
    assert done.returncode == 3 and "the reports are of 2 runs, 2 reports of the newest" in done.stdout and "--runs newest" in done.stdout
    newest = run.check(run.folder, "--max-leaked", "0", "--runs", "newest")
    assert newest.returncode == int(bad == "new") and "note: left out: 2 reports of other runs" in newest.stdout
    assert run.check(run.folder, "--require-reports", "3", "--runs", "newest").returncode == 1
    assert run.check(run.folder, "--max-leaked", "0", "--require-reports", "4", "--runs", "all").returncode == 1
    assert run.check(run.folder, "--max-leaked", "0", "--runs", "oldest").returncode == 2
    of_run(run, "old", 0)  # nor does it make up for what this one would have shown
    run.add("base.json", run.work, process={"session": "base"})
    assert run.check(run.work / "base.json", "--baseline", run.folder).returncode == 3


def test_a_folder_of_yesterdays_reports_is_no_pass(run):
    """Today's run has left none. A baseline may be of any age, and so may a file that is named."""
    path = run.add(leaked_bytes=0)
    report = json.loads(path.read_text())
    report["time"]["written"] = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() - DAY))
    path.write_text(json.dumps(report))
    done = run.check(run.folder, "--max-leaked", "0")
    assert done.returncode == 3 and "written 24 hours ago, so this run has left none" in done.stdout
    assert run.check(path, "--max-leaked", "0").returncode == 0
    assert run.check(run.folder, "--max-leaked", "0", "--runs", "newest").returncode == 0
    new = run.add(folder=run.work, leaked_bytes=0)
    assert run.check(new, "--baseline", run.folder).returncode == 0
    run.add(leaked_bytes=0)
    assert run.check(run.folder, "--max-leaked", "0").returncode == 0


def test_a_run_that_asked_for_nothing_is_not_saved_by_an_earlier_one(run):
    of_run(run, "1-2-a", 0, leaked_bytes=0)
    of_run(run, "9-9-b", DAY, leaked_bytes=0, requests=0, hits=0)
    done = run.check(run.folder, "--max-leaked", "0", "--runs", "newest")
    assert done.returncode == 1 and "nothing was judged" in done.stdout


def test_processes_that_follow_each_other_are_one_run(run):
    for begin in (0, 12, 80, 100):  # each lives 10 s
        of_run(run, None, begin, leaked_bytes=0)
    assert run.check(run.folder, "--max-leaked", "0").returncode == 0
    of_run(run, None, 100 + 10 + 61, leaked_bytes=0)
    assert run.check(run.folder, "--max-leaked", "0").returncode == 3


@pytest.mark.parametrize("session", ["job", "a b", "x" * 63, "1-2-a/0123abcd"])
def test_the_session_says_which_run(run, monkeypatch, session):
    plain = session.replace(" ", "_")
    of_run(run, plain, 0, leaked_bytes=0)
    of_run(run, plain[:54] + "/0123abcd", 1, leaked_bytes=0)  # of `cachalot run` within it
    of_run(run, "later", DAY, leaked_bytes=1)
    monkeypatch.setenv("CACHALOT_SESSION", session)
    assert run.check(run.folder, "--max-leaked", "0", "--require-reports", "2").returncode == 0
    monkeypatch.setenv("CACHALOT_SESSION", "other")
    done = run.check(run.folder, "--max-leaked", "0")
    assert done.returncode == 3 and "none of 3 reports is of this run (CACHALOT_SESSION=other)" in done.stdout
    assert run.check(run.folder, "--max-leaked", "0", "--runs", "newest").returncode == 1


@pytest.mark.parametrize("content", [
    b"", b"{}", b"[]", b"nonsense", b"[" * 100000, b"\xff\xfe", b"9" * 100000,
    b'{"schema_version": "2.0.0"}', b'{"schema_version": "1.0.0"}',
    b'{"schema_version": "1.0.0", "kind": "exit", "totals": {"requests": 1}}'])
@pytest.mark.parametrize("form", FORMATS)
def test_no_verdict_without_sound_reports(run, content, form):
    run.add(leaked_bytes=0)
    (run.folder / "x").write_bytes(content)
    done = run.check(run.folder, run.folder / "x", "--max-leaked", "0", "--format", form)
    assert done.returncode == 3, done.stdout
    assert run.check(run.folder / "x", "--max-oom", "0", "--format", form).returncode == 3


def test_a_pipe_is_read_but_not_waited_for(run, monkeypatch):
    report = run.add(leaked_bytes=0).read_bytes()
    os.mkfifo("pipe")
    monkeypatch.setattr(report_module, "WRITER_TRIES", 3)
    begun = time.monotonic()
    done = run.check("pipe", "--max-leaked", "0")
    assert done.returncode == 3 and "pipe is a pipe that nobody writes to" in done.stdout and time.monotonic() - begun < 10
    monkeypatch.undo()
    os.chdir(run.work)
    for pieces in ((report,), (report[:5], report[5:]), ()):  # one that comes late, slowly, with nothing at all
        writer = threading.Thread(target=write_slowly, args=("pipe", pieces))
        writer.start()
        assert run.check("pipe", "--max-leaked", "0").returncode == (0 if pieces else 3)
        writer.join()


def write_slowly(path, pieces):
    time.sleep(0.3)
    with open(path, "wb", buffering=0) as pipe:
        for piece in pieces:
            time.sleep(0.3)
            pipe.write(piece)


def test_what_is_wrong_names_its_option_and_a_gate_counts_once(run):
    path = run.add()
    for option, value in (("--max-increase", "5"), ("--require-reports", "x"), ("--max-spread", "2")):
        assert run.check(path, "--baseline", path, option, value).stderr.startswith(f"cachalot: {option}: `{value}` is ")
    done = run.check(path, "--max-oom", "0", "--max-oom=0", "--require-coverage", "none")
    assert done.stdout.count("max-oom") == 1 and done.stdout.splitlines()[-1].startswith("passed: 2 gates, 1 process")


@pytest.mark.parametrize("paths", [(), ("none.json",), ("empty",), ("cachalot.*.json",), (".",)])
def test_no_report_is_never_a_pass(run, paths):
    (run.work / "empty").mkdir()
    assert run.check(*paths, "--max-oom", "0", "--require-coverage", "none").returncode == 3


@pytest.mark.parametrize("mode", [0, 0o100, 0o400])
def test_a_folder_that_may_not_be_read_is_no_empty_one(run, mode):
    path = run.add("r.json", run.work, leaked_bytes=0)
    run.work.chmod(0o755)
    os.chmod("reports", mode)
    was = os.getresuid()
    os.setresuid(*((65534, 65534, 0) if was[0] == 0 else was))  # root may read all
    try:
        done = run.check(path.name, "reports", "--max-leaked", "0")
    finally:
        os.setresuid(*was)
    assert done.returncode == 3 and "error: reports may not be read\n" in done.stdout


@pytest.mark.parametrize("key, value", [
    ("leaked_bytes", -1), ("leaked_bytes", "0"), ("leaked_bytes", 2**53), ("ooms", None),
    ("ooms", 0.5), ("ooms", True), ("ooms", float("nan")), ("hit_ratio", 2),
    ("peak_reserved_bytes", float("inf")), ("requests", 10**40)])
def test_a_figure_that_cannot_be_is_damage(run, key, value):
    run.add(**{key: value})
    done = run.check(run.folder, "--max-warnings", "9")
    assert done.returncode == 3 and f"`totals.{key}` is" in done.stdout


def test_strangers_in_a_folder_are_left_out_but_cut_reports_are_not(run):
    path = run.add(leaked_bytes=0)
    (run.folder / "package.json").write_text('{"name": "x"}')
    (run.folder / "torn.json").write_text('{"name": "x')
    (run.folder / "folder.json").mkdir()
    done = run.check(run.folder, "--max-leaked", "0")
    assert done.returncode == 0 and "note: left out: 2 files, being no report of cachalot\n" in done.stdout
    (run.folder / "cut.json").write_text(path.read_text()[:-300])
    done = run.check(run.folder, "--max-leaked", "0")
    assert done.returncode == 3 and "cut.json is cut off" in done.stdout


def test_a_huge_file_is_refused_unread(run):
    path = run.folder / "huge.json"
    with open(path, "wb") as file:
        file.truncate(1 << 40)
    done = run.check(path, "--max-oom", "0")
    assert done.returncode == 3 and "larger than any report" in done.stdout


def test_of_each_process_the_last_report_counts(run):
    same = {"pid": 7}
    run.add("a.1.json", kind="signal", process=same, leaked_bytes=None, ooms=3)
    run.add("a.json", process=same, leaked_bytes=0, ooms=0)
    code, verdict = run.gates(run.folder, "--max-leaked", "0", "--max-oom", "0",
                              "--max-peak-reserved", "sum:22MiB")
    assert code == 0 and len(verdict["processes"]) == 1
    assert verdict["notes"] == ["left out: 1 earlier report of the same processes"]


def test_of_whom_a_report_was_made_afterwards(run):
    path = run.add(kind="harvest")
    report = json.loads(path.read_text())
    report["exit"].update(reason="unknown", code=None, signal=None, clean=None)
    path.write_text(json.dumps(report))
    assert "wrote no report itself: it was killed" in run.check(run.folder, "--max-oom", "0").stdout


def test_what_still_ran_is_not_judged_as_leaked(run):
    run.add(kind="request", leaked_bytes=None)
    done = run.check(run.folder, "--max-leaked", "1G")
    assert done.returncode == 1 and "while the program ran" in done.stdout
    assert "still ran: its figures are not final" in done.stdout


@pytest.mark.parametrize("gates, script, code", [
    ("max-leaked=4MiB", "{page} report", 0), ("max-leaked=0", "{page} report", 1),
    ("max-leaked=0", "{page} report; exit 7", 7), ("max-leaked=0", "kill -TERM $$", -15),
    ("max-leaked=4MiB", "true", 3), ("max-leaked=1G", "{page} exit; exit 0", 0),
    ("max-leaked=0", "{page} exit; exit 0", 1), ("max-leakd=0", "true", 2), ("", "true", 2),
    ("baseline=none.json", "true", 125)])
def test_run_with_gates(place, gates, script, code):
    place.environment["ASAN_OPTIONS"] = "verify_asan_link_order=0"  # should make_page have it
    page = f"{built('make_page')} {place.pages}"
    done = place.cachalot("run", "--check", gates, "--output", "o.%p.json", "sh", "-c",
                          script.replace("{page}", page))
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert code not in (1, 7) or "FAIL max-leaked" in done.stderr
    assert code != 3 or "no report: no process of this run" in done.stderr


def test_a_process_that_outlives_the_run_leaves_no_verdict(place):
    place.environment["ASAN_OPTIONS"] = "verify_asan_link_order=0"  # should make_page have it
    page = f"{built('make_page')} {place.pages}"
    done = place.cachalot("run", "--check", "max-leaked=1G,output=v.json,format=json", "--output",
                          "o.%p.json", "sh", "-c",
                          f"{page} report; {page} hang >ready 2>&1 & echo $! >pid; "
                          "until test -s ready; do sleep 0.02; done")
    pid = int(pathlib.Path(place.work / "pid").read_text())
    assert done.returncode == 3
    problems = json.loads((place.work / "v.json").read_text())["problems"]
    place.run("kill", "-9", str(pid))
    assert problems == [f"process {pid} of this run still runs"]


def test_a_limit_for_each_gpu(tmp_path, model):
    """The worst device of any process, where the sum of its devices is another figure."""
    report = copy.deepcopy(model)
    device = report["devices"][0]
    report["devices"] = [device, copy.deepcopy(device)]
    report["devices"][1]["device"] = 1
    peak = device["statistics"]["reserved_bytes"]["all"]["peak"]
    report["devices"][1]["statistics"]["reserved_bytes"]["all"]["peak"] = peak + 512
    report["totals"]["peak_reserved_bytes"] = 2 * peak + 512

    def check(limit):
        (tmp_path / "r.json").write_text(json.dumps(report))
        done = subprocess.run([*COMMAND, "check", tmp_path / "r.json", "--max-peak-reserved", limit], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    assert check(f"gpu:{peak + 512}")[0] == 0 and check(f"{peak + 512}")[0] == 1
    code, said = check(f"gpu:{peak}")
    assert code == 1 and "on each GPU" in said and "on GPU 1 (" in said and "512 bytes too many" in said
    for damage in (None, "x", -1, 1.5):
        report["devices"][1]["statistics"]["reserved_bytes"]["all"]["peak"] = damage
        assert check("gpu:80GiB")[0] == 1
