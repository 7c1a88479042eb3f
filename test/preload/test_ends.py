"""However a process ends, its numbers are not lost, and nobody else's are touched."""

import json
import os
import signal
import subprocess
import sys

import pytest
import sanitizer

from conftest import PROGRAMS, load

WHOLE = {"return": 3, "exit": 4, "exit from a thread": 7, "end of the main thread": 7}
CUT = {"_exit": 6, "quick_exit": 8, "abort": -signal.SIGABRT, "term": -signal.SIGTERM,
       "kill": -signal.SIGKILL,
       "segv": -signal.SIGSEGV}


def check(report, requests=2, frees=1):
    assert (report.totals["requests"], report.totals["frees"]) == (requests, frees)
    assert report.totals["leaked_blocks"] == requests - frees


@pytest.mark.parametrize("way", WHOLE)
def test_ends_that_run_destructors(place, way):
    report = place.report("end", way, code=WHOLE[way])
    check(report)
    assert report["exit"] == {"reason": "exit", "code": WHOLE[way], "signal": 0, "clean": True}
    assert place.left_pages() == []


@pytest.mark.parametrize("way", CUT)
def test_ends_that_leave_a_page(place, way):
    place.same("end", way, code=CUT[way])
    assert place.reports() == []
    assert len(place.left_pages()) == 1
    (report,) = place.harvest()
    check(report)
    assert report["kind"] == "harvest"
    assert place.left_pages() == []
    assert place.harvest() == []


def test_threads_alive_at_exit(place):
    for _ in range(20):
        done = place.run("end", "threads alive")
        assert (done.code, done.out, done.err) == (5, "so far\n", "")
    assert len(place.reports()) == 20
    assert all(report["exit"]["code"] == 5 for report in place.reports())


@sanitizer.unless_sanitized("its runtime tells of what a handler should not call", ("tsan",))
def test_a_handler_that_exits(place):
    """What it interrupted in us is never left, and other threads wait for it. (Natively it may find the driver's lock taken.)"""
    for _ in range(30):
        done = place.run("end", "handler", timeout=30)
        assert (done.code, done.out, done.err) == (9, "so far\n", "")
    assert len(place.reports()) == 30


def test_exec_of_itself(place):
    """Three programs, one after the other, with one pid: each has its page and its report."""
    check(place.report("end_by_exec", "self", 2))
    assert len(place.left_pages()) == 2
    place.harvest()
    reports = place.reports()
    assert sorted(report["process"]["generation"] for report in reports) == [0, 1, 2]
    assert [report.totals["requests"] for report in reports] == [2, 2, 2]


def test_exec_of_another_program(place):
    place.same("end_by_exec", "other", 0)
    (report,) = place.harvest()
    check(report, 2, 0)
    assert report["exit"]["reason"] in ("exec", "unknown")


@pytest.mark.parametrize("way", ["fails", "vfork", "spawn", "system"])
def test_children_that_exec(place, way):
    check(place.report("end_by_exec", way, 0))
    assert place.left_pages() == []


@pytest.mark.parametrize("what", ["exit", "_exit", "use", "clone"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_forked_children(place, when, what):
    # At the fork a thread may hold a lock of the sanitizer's, for which the child's search would wait for ever.
    place.findings.leaks = False
    place.same("end_of_children", when, what)
    reports = place.reports()
    (parent,) = [report for report in reports if report.totals["requests"] == 101]
    check(parent, 101, 101)
    children = [report for report in reports if report is not parent]
    # Only a child of a process that has not begun can use CUDA; all others write nothing.
    assert len(children) == (3 if (when, what) == ("after", "use") else 0)
    for child in children:
        check(child, 1, 1)
        assert child["exit"]["code"] == 3
    assert place.left_pages() == []


@sanitizer.unless_sanitized("its runtime knows nothing of such a child, either", ("asan", "tsan"))
@pytest.mark.parametrize("who, times", [("itself", 1), ("other", 2)])
def test_a_child_that_begins_again(place, who, times):
    place.same("begin_again", who)
    parent, child = sorted(place.reports(), key=lambda report: report["exit"]["code"])
    check(parent, 100, 100)
    check(child, 50 * times, 50 * times)
    for report, works in (parent, 2), (child, times):
        assert report["coverage"]["submissions"]["sets"] == 50 * works
    assert place.left_pages() == []


@sanitizer.unless_sanitized("its runtime knows nothing of such a child, either", ("asan", "tsan"))
def test_a_child_that_has_its_parents_pid(place):
    if place.native("begin_again", "same pid").code == 77:
        pytest.skip("no pid namespaces here")
    place.same("begin_again", "same pid")
    child, parent = sorted(place.reports(), key=lambda report: report.totals["requests"])  # of one name
    check(child, 50, 50)
    check(parent, 100, 100)
    assert child["process"]["pid"] == parent["process"]["pid"] == 1
    assert parent["coverage"]["submissions"]["sets"] == 100


@sanitizer.unless_sanitized("what the sanitizer keeps grows")
def test_contexts_that_end_leave_little(place):
    (kib,) = (int(line.split()[-1]) for line in place.run("contexts_come_and_go").out.splitlines())
    assert kib <= 40  # 14 to 20; 145 with the lists of spare blocks


@sanitizer.unless_sanitized("its runtime warns of coroutines", ("asan",))
def test_a_signal_on_a_small_stack(place):
    ours = place.run("small_stack", LD_BIND_NOW="1")  # natively SIGUSR1 ends it
    assert (ours.code, ours.out, ours.err) == (0, "cuInit(0): 0\n", "")


@pytest.mark.parametrize("by", [(), ("driver",)])
def test_frees_at_exit(place, by):
    report = place.report("free_at_exit", *by)
    # 3 blocks and what the handler made after CUDA began took: the others came when we had ended.
    assert report.totals["leaked_blocks"] == 0
    assert report.counter("num_late_frees") == 2
    assert report.totals["requests"] == 4


LATE = ["destructor", "thread", "flush", "handler", "flush handler", "flush thread"]


@pytest.mark.parametrize("trace", [None, "t.trace"])
@pytest.mark.parametrize("way", LATE)
def test_frees_after_our_destructor(place, way, trace):
    """In a library whose constructor began CUDA: there the exit handler comes last."""
    report = place.report("end_late", code=5, WAY=way, CACHALOT_TRACE=trace)
    check(report, 2, 2)
    assert report["exit"] == {"reason": "exit", "code": 5, "signal": 0, "clean": True} and place.left_pages() == []
    if trace:
        replayed = json.loads(place.cachalot("replay", trace, "--format", "json", "--conf", "expandable_segments:False").out)
        assert replayed["totals"]["frees"] == 2


@pytest.mark.parametrize("way, code", [("_exit", 5), ("thread _exit", 5), ("flush _exit", 5), ("abort", -signal.SIGABRT)])
def test_an_end_after_our_destructor(place, way, code):
    """The report counts what is freed until then, once it is harvested."""
    place.same("end_late", WAY=way, code=code)
    assert len(place.left_pages()) == 1
    (report,) = place.harvest()
    check(report, 2, 2)
    assert len(place.reports()) == 1 and place.left_pages() == []


def test_frees_in_a_quick_exit(place):
    place.same("end_late", "quick_exit", WAY="nothing", code=5)
    (report,) = place.harvest()
    check(report, 3, 1)


def test_a_program_without_cuda(place):
    place.same("no_cuda")
    place.same(sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')")
    place.same(sys.executable, "-c", "import subprocess; subprocess.run(['/bin/true'], check=True)")
    assert list(place.work.iterdir()) == [] and place.left_pages() == []


def test_the_host_process_is_left_as_it_is(place):
    place.report("host_state")


@sanitizer.unless_sanitized("descriptors stay shared there", ("tsan",))
@pytest.mark.parametrize("kernel", [[], ["old"]])
@pytest.mark.parametrize("way", [{}, {"CACHALOT_EVENTS": "2000", "CACHALOT_TRACE": "all.trace", "CACHALOT_LOG": "stderr"}])
def test_descriptors_are_the_programs(place, way, kernel):
    done = place.run("descriptors", 3, *kernel, **way)
    assert (done.code, done.out) == (0, "poll(&wait, 1, 1000): 1\nlowest: 0\nstay: 0\ninherit: 0\n")
    reports = place.reports()
    assert len(reports) > 3 and not any(report["warnings"] for report in reports)


def test_arithmetic_that_traps(place):
    place.same("traps")
    assert place.reports()[0].totals["requests"] == 3000


@pytest.mark.parametrize("variables", [{"CACHALOT_DISABLE": "1"}, {"CACHALOT_ONLY": "other*"}])
def test_switched_off(place, variables):
    for program in ("allocate_130", "allocate_driver", "allocate_dlsym"):
        place.same(program, **variables)
    assert list(place.work.iterdir()) == [] and place.left_pages() == []


@pytest.mark.parametrize("variables", [{"CACHALOT_DISABLE": "0"}, {"CACHALOT_DISABLE": ""},
                                       {"CACHALOT_ONLY": "alloc*_130"}])
def test_not_switched_off(place, variables):
    check(place.report("allocate_130", **variables), 6, 5)


def test_log_to_stderr(place):
    done = place.run("allocate_130", CACHALOT_LOG="stderr", CACHALOT_CONF="nonsense:1")
    assert done.err.startswith("cachalot[") and "nonsense" in done.err and done.err.count("\n") == 1


def test_log_to_a_file(place):
    place.same("allocate_130", CACHALOT_LOG="log", CACHALOT_CONF="nonsense:1")
    assert "nonsense" in (place.work / "log").read_text()
    assert (place.work / "log").stat().st_mode & 0o777 == 0o600


def test_all_warnings_reach_the_log(place):
    """Also those made before service begins and after it has ended."""
    bad = ",".join(f"nonsense{i}:1" for i in range(12))
    place.same("own_handler", "after", "plain", CACHALOT_LOG="log", CACHALOT_CONF=bad,
               CACHALOT_OUTPUT="x-%Q.json", CACHALOT_PAGE_DIR="/proc/nothing",
               CACHALOT_SIGNAL="NONSENSE")
    warnings, log = place.only_report().warnings, (place.work / "log").read_text()
    assert len(warnings) == 8 + 1 + 3, warnings
    assert [warning for warning in warnings if warning not in log] == []
    assert log.count("\n") == len(warnings)
    assert "CACHALOT_OUTPUT is not usable" in log and "5 more settings" in log
    assert "took signal" in log and "the live page: " in log


@pytest.mark.parametrize("value", ["argv", "arguments"])
def test_redacted_arguments(place, value):
    place.same("end", "kill", code=-signal.SIGKILL, CACHALOT_REDACT=value)
    (page,) = place.left_pages()
    assert b"\0kill\0" not in page.read_bytes()
    (report,) = place.harvest()
    assert report["process"]["argv"] is None


@pytest.mark.parametrize("words, name", [
    (["train.py", "-m", "x"], "train.py"), (["-uB", "-W", "ignore", "-Xdev", "sub/train.py"], "train.py"),
    (["-m", "pkg.tool"], "pkg.tool"), (["-Bmpkg.tool"], "pkg.tool"), (["-c", "exec(open('train.py').read())"], "python-c"),
    (["-Ic", "exec(open('train.py').read())"], "python-c"), (["pkg"], "pkg"), (["pkg/__main__.py"], "pkg"),
    (["--check-hash-based-pycs", "always", "train.py"], "train.py"), (["/dev/fd/0"], "0"), (["-"], None), ([], None)])
@pytest.mark.parametrize("redact", [False, True])
def test_names_of_python_programs(place, words, name, redact):
    script = f"import ctypes; ctypes.CDLL('{PROGRAMS}/liballocate_plugin_130.so').run()"
    for path in ("train.py", "sub/train.py", "pkg/__main__.py", "pkg/tool.py"):
        (place.work / path).parent.mkdir(exist_ok=True)
        (place.work / path).write_text(script)
    process = place.start(sys.executable, *words, CACHALOT_REDACT="argv" if redact else None)
    process.communicate(script)
    plain = os.path.basename(os.path.realpath(sys.executable))
    (path,) = place.work.glob("*.json")
    assert path.name == f"cachalot.{name if name and not redact else plain}.{process.pid}.json"
    assert load(path)["process"]["program"] == (name if name and not redact else plain)


def test_name_of_a_python_program_that_the_loader_starts(place):
    (place.work / "train.py").write_text(f"import ctypes; ctypes.CDLL('{PROGRAMS}/liballocate_plugin_130.so').run()")
    headers = subprocess.run(["readelf", "-l", f"{PROGRAMS}/allocate_130"], text=True, stdout=subprocess.PIPE, check=True).stdout
    loader, = [line.split()[-1].strip("[]") for line in headers.splitlines() if "interpreter" in line]
    process = place.start(loader, "--inhibit-cache", sys.executable, "train.py")
    process.communicate()
    assert load(place.work / f"cachalot.train.py.{process.pid}.json")["process"]["program"] == "train.py"


def test_arguments(place):
    assert place.report("end", "return", code=3)["process"]["argv"][1:] == ["return"]


def test_pages_are_private(place):
    place.run("end", "kill")
    (page,) = place.left_pages()
    assert page.stat().st_mode & 0o777 == 0o600 and page.stat().st_uid == os.getuid()


def test_output_lies_where_the_program_started(place):
    """Also when the program goes elsewhere."""
    script = ("import ctypes, os; os.chdir('/'); "
              f"ctypes.CDLL('{PROGRAMS}/liballocate_plugin_130.so').run()")
    place.run(sys.executable, "-c", script, CACHALOT_OUTPUT=str(place.work / "%e.json"))
    (path,) = place.work.iterdir()
    assert load(path)["totals"]["requests"] == 6


def test_output_of_a_start_in_a_folder_that_is_gone(place):
    """Nothing is made in its place; the page stays, and its report can be put elsewhere."""
    script = f"mkdir gone && cd gone && rmdir ../gone && exec {PROGRAMS}/allocate_130"
    place.run("/bin/sh", "-c", script)
    assert list(place.work.iterdir()) == []
    assert "--output names one" in place.cachalot("harvest").err
    place.cachalot("harvest", "--output", place.work / "cachalot.gone.json")
    assert place.only_report().warned("there will be no report: the directory of the start")


@pytest.mark.parametrize("names, length, there", [(3, 60, True), (1, 250, True), (3, 250, False)])
def test_output_of_a_start_in_a_deep_folder(place, names, length, there):
    """In the folder itself or nowhere: never in one that its name begins with."""
    folder = place.work.joinpath(*["n" * length] * names)
    folder.mkdir(parents=True)
    place.run("/bin/sh", "-c", f"cd {folder} && exec {PROGRAMS}/allocate_130")
    files = [path for path in place.work.rglob("*") if path.is_file()]
    assert [path.parent for path in files] == [folder] * there
    assert len([path for path in place.work.rglob("*") if path.is_dir()]) == names
