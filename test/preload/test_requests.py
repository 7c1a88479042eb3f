"""Reports and other requests while a program runs: by signal and from outside."""

import contextlib
import os
import pathlib
import re
import signal
import sys
import time

import pytest
import sanitizer

from conftest import BUILD, MIB, PROGRAMS, ROOT, SIM, Report, load, stop


def ready(place, program="allocate_on", **more):
    process = place.start(program, **more)
    assert process.stdout.readline() == "ready\n"
    return process


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():  # once more at the end may be once too often
        assert time.monotonic() < end
        time.sleep(0.002)


def each(pid, what, read):
    """What `read` says of each file or thread (fd, task) of a process that does not end meanwhile."""
    for path in pathlib.Path(f"/proc/{pid}/{what}").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield read(path)


def numbered(place):
    return {int(path.name.split(".")[-2]): path for path in place.work.glob("cachalot.*.*.*.json")}


def finish(process):
    process.stdin.close()
    process.stdin = None
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "cudaGetLastError(): 0\n", "")


def test_signals_while_allocating(place):
    process = ready(place)
    for number in range(1, 31):
        process.send_signal(signal.SIGUSR1)
        wait_for(lambda: number in numbered(place))
    finish(process)
    reports = [Report(load(path)) for _, path in sorted(numbered(place).items())]
    assert [report["sequence"] for report in reports] == list(range(1, 31))
    assert {report["kind"] for report in reports} == {"signal"}
    requests = [report.totals["requests"] for report in reports]
    assert requests == sorted(requests) and requests[-1] > requests[0]
    for report in reports:
        assert report["exit"]["reason"] == "running"
        assert not report["devices"][0]["torn"]
        assert report.totals["requests"] - report.totals["frees"] == report.statistic("allocation")


def test_a_storm_of_signals(place):
    process = ready(place)
    for _ in range(2000):
        process.send_signal(signal.SIGUSR1)
    finish(process)
    for path in place.work.glob("*.json"):
        load(path)
    assert not list(place.work.glob(".*"))


@pytest.mark.parametrize("kind", ["plain", "siginfo"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_handler_of_the_program_wins(place, when, kind):
    report = place.report("own_handler", when, kind)
    assert report.warned("signal 10") == 1
    assert numbered(place) == {}


def test_no_signal(place):
    place.same("allocate_130", CACHALOT_SIGNAL="none")
    process = ready(place, CACHALOT_SIGNAL="none")
    process.send_signal(signal.SIGUSR1)
    assert process.wait(60) == -signal.SIGUSR1


@pytest.mark.parametrize("name, number", [("USR2", signal.SIGUSR2), ("SIGUSR2", signal.SIGUSR2),
                                          ("usr2", signal.SIGUSR2),
                                          ("40", 40), ("PROF", signal.SIGPROF)])
def test_another_signal(place, name, number):
    process = ready(place, CACHALOT_SIGNAL=name)
    process.send_signal(number)
    wait_for(lambda: 1 in numbered(place))
    finish(process)


def test_an_ignored_signal_is_taken(place):
    """As `cachalot run` starts programs, so that an early signal does not kill them."""
    process = ready(place, prepare=lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN), CACHALOT_SESSION="1-2-3")
    process.send_signal(signal.SIGUSR1)
    wait_for(lambda: 1 in numbered(place))
    finish(process)


def test_a_signal_before_cuda_begins(place):
    """It does no harm where a CUDA library is in the process, and asks for a report at the begin."""
    process = place.start("wait_for_input", "idle")
    assert process.stdout.readline() == "idle\n"
    for _ in range(3):
        process.send_signal(signal.SIGUSR1)
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "ready\n"
    wait_for(lambda: 1 in numbered(place))
    assert process.communicate("\n", timeout=60) == ("cudaFree(kept): 0\n", "") and process.returncode == 0
    (early,) = numbered(place).values()
    assert load(early)["kind"] == "signal" and len(place.reports()) == 2


@pytest.mark.parametrize("use, code", [
    ("ctypes.CDLL('libcudart.so.13')", 0), ("ctypes.CDLL('libcuda.so.1')", 0), ("ctypes.CDLL('libcuda.so.1').cuInit", 0),
    (f"ctypes.CDLL('{PROGRAMS}/liballocate_plugin_130.so').run", 0), ("ctypes.CDLL('libm.so.6').sin", -signal.SIGUSR1)])
def test_a_signal_after_a_library_is_loaded(place, use, code):
    """Also one that another library needs. A process without CUDA, or that has looked for it in vain, is left as it was."""
    script = f"""
import contextlib, ctypes, signal
with contextlib.suppress(OSError):
    ctypes.CDLL("/none/libcuda.so.1")
used = {use}
signal.raise_signal(signal.SIGUSR1)
"""
    done = place.run(sys.executable, "-c", script)
    assert (done.code, done.out) == (code, "") and not place.reports()


def test_dump(place):
    process = ready(place, "wait_for_input")
    for number in (1, 2):
        done = place.cachalot("dump", process.pid)
        assert (done.code, done.err) == (0, "")
        report = load(done.out.strip())
        assert (report["kind"], report["sequence"]) == ("request", number)
        assert report["devices"][0]["segments"] is None
    done = place.cachalot("dump", "--segments", process.pid)
    segments = load(done.out.strip())["devices"][0]["segments"]
    assert sorted(segment["total_bytes"] for segment in segments) == [2 * MIB, 30 * MIB]
    process.communicate("\n")
    assert place.cachalot("dump", process.pid).code == 3


def test_a_dump_that_cannot_be_written(place):
    process = ready(place, "wait_for_input", CACHALOT_OUTPUT="/proc/nothing/r.json")
    done = place.cachalot("dump", process.pid)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("cachalot: cannot write /proc/nothing/r.json: ") and done.err.count("\n") == 1


@pytest.mark.parametrize("end", [signal.SIGCONT, signal.SIGKILL], ids=["goes on", "is killed"])
def test_a_process_that_is_stopped(place, end):
    """Who asks it waits no longer than told; it answers the next one, or its page becomes a report."""
    process = ready(place, "wait_for_input")
    stop(process)
    done = place.cachalot("dump", "--timeout", "0.3", process.pid)
    assert done.code == 1 and "did not answer within 0.3 s" in done.err
    process.send_signal(end)
    if end == signal.SIGKILL:
        process.wait()
        (report,) = place.harvest()
        assert report.totals["requests"] == 2
    else:
        assert load(place.cachalot("dump", process.pid).out.strip())["kind"] == "request"
        assert process.communicate("\n")[1] == "" and process.returncode == 0


def wake_ups(process):
    """How often the service thread has gone to sleep."""
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        if (task / "comm").read_text() == "cachalot\n":
            return int(re.search(r"\nvoluntary_ctxt_switches:\t(\d+)", (task / "status").read_text())[1])
    return 0


def test_the_service_thread_sleeps(place):
    """It sleeps while nothing changes. What then changes wakes it, also a free without the lock."""
    process = ready(place, "wait_for_input", CACHALOT_OUTPUT="r.json", CACHALOT_CONF="expandable_segments:True")
    begin = time.monotonic()
    before = None
    while wake_ups(process) != before:
        before = wake_ups(process)
        time.sleep(1.5)
        assert time.monotonic() < begin + 60
    slept = 1000 * (time.monotonic() - begin)
    process.communicate("\n")
    (series,) = load(place.work / "r.json")["series"]
    points = series["points"]
    assert series["device"] == 0 and max(allocated for _, allocated, *_ in points) == 30 * MIB + 1024
    assert points[-1][1] == 0 and points[-2][1] == 1024
    assert points[-1][0] > slept - 100 and 0 < points[-1][3] < 9 << 30


def test_the_series_of_a_killed_process(place):
    process = ready(place, "wait_for_input")
    process.kill()
    process.wait()
    (report,) = place.harvest()
    (series,) = report["series"]
    assert max(allocated for _, allocated, *_ in series["points"]) == report.statistic("allocated_bytes", "peak")
    assert max(reserved for _, _, reserved, _ in series["points"]) == report.statistic("reserved_bytes", "peak")


def test_empty_cache(place):
    process = ready(place, "wait_for_input")
    done = place.cachalot("empty-cache", process.pid)
    assert (done.code, done.err) == (0, "")
    assert re.search(r"\b31457280\b", done.out)
    report = Report(load(place.cachalot("dump", process.pid).out.strip()))
    assert report.totals["reserved_bytes"] == 2 * MIB
    out, err = process.communicate("\n")
    assert (process.returncode, out, err) == (0, "cudaFree(kept): 0\n", "")


def test_requests_while_allocating(place):
    process = ready(place)
    for _ in range(5):
        assert place.cachalot("empty-cache", process.pid).code == 0
        assert place.cachalot("dump", "--segments", process.pid).code == 0
    finish(process)
    reports = place.reports()
    assert len(reports) == 6


def test_run_with_summary(place):
    done = place.cachalot("run", "--summary", "--", PROGRAMS / "end", "return")
    assert (done.code, done.out) == (3, "so far\n")
    assert "end" in done.err and "peak" in done.err
    report = place.only_report()
    assert report["process"]["session"] and report.totals["requests"] == 2


def test_run_of_what_is_killed(place):
    done = place.cachalot("run", "--summary", PROGRAMS / "end", "kill")
    assert done.code == -signal.SIGKILL
    report = place.only_report()
    assert (report["kind"], report["exit"]["reason"], report["exit"]["signal"]) == ("harvest",
                                                                                    "killed", 9)
    assert place.left_pages() == []


def test_run_of_a_whole_family(place):
    done = place.cachalot("run", "--summary", "--output", "r.json", "/bin/sh", "-c",
                          f"{PROGRAMS}/allocate_130 & {PROGRAMS}/allocate_static & wait")
    assert done.code == 0
    reports = [load(path) for path in place.work.glob("r*.json")]
    assert sorted(os.path.basename(report["process"]["exe"])
                  for report in reports) == ["allocate_130", "allocate_static"]
    assert len({report["process"]["session"] for report in reports}) == 1


def test_run_refuses_static_programs(place):
    done = place.cachalot("run", PROGRAMS / "no_cuda_static")
    assert done.code == 125 and "static" in done.err


def test_run_refuses_setuid(place):
    program = place.work / "setuid"
    program.write_bytes((PROGRAMS / "no_cuda").read_bytes())
    if os.getuid() != 0:
        pytest.skip("only root can make one of another user")
    os.chown(program, 65534, 65534)
    program.chmod(0o4755)
    done = place.cachalot("run", program)
    assert done.code == 125 and "setuid" in done.err


@pytest.mark.parametrize("conf, wrong", [
    ("nonsense:1", "option nonsense:1 is not understood: no such option; the options are"),
    ("free_mode:never", "option free_mode:never is not understood: async, fence or strict; the"),
    ("x:1,cache:off,ipc:no", "option x:1 is not understood: no such option; option ipc:no is"),
    ("--version", "option --version: is not understood: no such option"),
])
def test_run_refuses_bad_options(place, conf, wrong):
    done = place.cachalot("run", f"--conf={conf}", PROGRAMS / "allocate_130")
    assert (done.code, done.out) == (2, "") and done.err.startswith(f"cachalot: --conf: {wrong}")
    assert "max_split_size_mb, max_non_split_rounding_mb" in done.err
    assert "stands" not in done.err and done.err.count("\n") == 1
    assert place.reports() == []


@sanitizer.unless_sanitized("scripts/try builds without one, and puts no run-time of it first")
@pytest.mark.parametrize("output, name", [
    (None, "cachalot.allocate_130.*.json"), ("there/%e.json", "there/allocate_130.json")])
def test_try_says_where_the_report_is(place, output, name):
    """scripts/try, as if everything were built."""
    scripts = place.work / "scripts"
    scripts.mkdir()
    for path in (ROOT / "scripts").iterdir():
        (scripts / path.name).symlink_to(path)
    (scripts / "build").unlink()
    (scripts / "build").mkdir()
    (scripts / "build/setup.sh").write_text(f"""build={BUILD}
        gpu_name() {{ false; }}
        say() {{ :; }}
        need_packages() {{ :; }}
        find_meson() {{ :; }}
        need_toolkit() {{ :; }}
        build_tree() {{ :; }}
        """)
    done = place.run(scripts / "try", PROGRAMS / "allocate_130", preload=(), CACHALOT_OUTPUT=output)
    (path,) = place.work.glob(name)
    assert (done.code, done.out.splitlines()[-1]) == (0, f"Report: {path}"), done.err


def test_bad_options_of_the_environment(place):
    """Refused by `run`; else the report says so."""
    done = place.cachalot("run", PROGRAMS / "allocate_130", CACHALOT_CONF="nonsense:1", LD_LIBRARY_PATH=SIM)
    assert done.code == 125 and done.err.startswith("cachalot: CACHALOT_CONF: option nonsense:1 ") and not place.reports()
    place.same("allocate_130", CACHALOT_CONF="nonsense:1")
    assert place.only_report().warned("no such option; the default stands") == 1
