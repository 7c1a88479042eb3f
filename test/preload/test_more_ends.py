"""Children and ends of every kind: daemons, Python's workers, plugins that go."""

import os
import shutil
import sys

import pytest

import sanitizer
from conftest import LIBRARY, PROGRAMS, load

WORKERS = """
import ctypes, multiprocessing, sys

def work(number):
    cudart = ctypes.CDLL("libcudart.so.13")
    block = ctypes.c_void_p()
    codes = [cudart.cudaMalloc(ctypes.byref(block), ctypes.c_size_t(1000)) for i in range(number)]
    return codes + [cudart.cudaFree(block)]

if __name__ == "__main__":
    if sys.argv[2:]:
        work(3)
    with multiprocessing.get_context(sys.argv[1]).Pool(3) as pool:
        print(sorted(pool.map(work, [1, 2, 3, 4], 1)))
        pool.close()
        pool.join()
"""


def test_a_daemon(place):
    report = place.report("daemon")
    assert (report.totals["requests"], report.totals["frees"]) == (6, 5)
    assert report["exit"]["code"] == 3
    assert place.left_pages() == []


@pytest.mark.parametrize("parent", [(), ("uses CUDA",)])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(place, method, parent):
    """Workers leave by os._exit: their pages become reports."""
    place.findings.leaks = False
    script = place.work / "workers.py"
    script.write_text(WORKERS)
    place.same(sys.executable, script, method, *parent)
    place.harvest()
    requests = [report.totals["requests"] for report in place.reports()]
    if parent:
        requests.remove(3)
    # A child forked from a process that uses CUDA has none; natively too.
    assert sum(requests) == (0 if parent and method == "fork" else 10), requests
    assert all(report.totals["double_frees"] == 0 for report in place.reports())
    assert place.left_pages() == []


@pytest.mark.parametrize("closing", [(), ("close",), ("flush",)])
def test_a_plugin_that_frees_at_its_end(place, closing):
    report = place.report("load_plugins", *closing, PROGRAMS / "libplugin_end.so")
    # One that goes with the program frees when we have ended.
    assert (report.totals["requests"], report.totals["leaked_blocks"]) == (3, 1)
    assert report.counter("num_late_frees") == (0 if "close" in closing else 1)


@sanitizer.unless_sanitized("its runtime does not allow RTLD_DEEPBIND")
@pytest.mark.parametrize("cudart", ["130", "static"])
@pytest.mark.parametrize("way, asked", [("namespace", []), ("denied", []), ("denied", ["libcuda.so.1"])])
def test_loaded_past_us_is_said(place, way, asked, cudart):
    """Also of a process that looked something up through us."""
    report = place.report("load_deep", way, PROGRAMS / f"liballocate_plugin_{cudart}.so", *asked)
    assert report["coverage"]["status"] == "none"
    said = "calls of CUDA go past us" if way == "denied" else "dlmopen"
    assert any(said in reason for reason in report["coverage"]["reasons"])
    assert report.totals["requests"] == 0


# How a tool is called: within which of the driver's functions, and whether it keeps the context.
CALLED_BACK = [("cuDevicePrimaryCtxRetain",), ("cuDevicePrimaryCtxRelease_v2",), ("cuDevicePrimaryCtxReset_v2",),
               ("cuDevicePrimaryCtxRelease_v2", "keep"), ("cuDevicePrimaryCtxReset_v2", "keep"),
               ("cuDeviceGetCount",), ("cuDeviceTotalMem_v2",), ("cuDeviceGetAttribute",), ("cuMemAddressReserve",),
               ("cuMemAlloc_v2",), ("cuMemFree_v2",), ("cuMemCreate",), ("cuMemUnmap",), ("cuCtxRecordEvent",),
               ("cuStreamWaitEvent",), ("cuLaunchKernel",), ("*",)]


@pytest.mark.parametrize("how", CALLED_BACK, ids=" ".join)
def test_called_back_by_the_driver(place, how):
    """A tool that uses the driver within the driver's own functions waits for no lock of ours."""
    report = place.report("called_back", *how, CACHALOT_SIM_CAPACITY="256M")
    assert report.totals["requests"] > 20 and report.totals["double_frees"] == 0


@pytest.mark.parametrize("way, code", [("begin", 0), ("exit", 6)])
def test_a_thread_that_is_to_be_cancelled(place, way, code):
    """Natively neither cudaMalloc nor exit is a point where that happens."""
    place.findings.leaks = False  # the stack of a thread that calls exit
    report = place.report("cancelled", way, code=code)
    assert (report["exit"]["code"], report.totals["leaked_blocks"]) == (code, code != 0)


def test_a_signal_that_is_ignored(place):
    """It stays so, also for what the program starts; `cachalot run` is what ignores it so that we take it."""
    report = place.report("ignores")
    assert report.warned("belongs to the program") == 1


@pytest.mark.parametrize("limit", ["pipe", "file"])
def test_a_log_that_takes_nothing(place, limit):
    """A pipe that nobody reads, a file at its limit: natively the program does not write there."""
    if limit == "file" and sanitizer.PATH:
        pytest.skip("a sanitizer's runtime writes files, too")
    script = "import os, resource, signal, sys; [signal.signal(n, signal.SIG_DFL) for n in (signal.SIGPIPE, signal.SIGXFSZ)]; "
    if limit == "pipe":
        script += "r, w = os.pipe(); os.close(r); os.dup2(w, 2); log = 'stderr'; "
    else:
        script += "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); log = os.path.abspath('log'); "
    script += "os.execve(sys.argv[1], sys.argv[1:], {**os.environ, 'LD_PRELOAD': sys.argv[2], 'CACHALOT_LOG': log})"
    done = place.run(sys.executable, "-c", script, PROGRAMS / "allocate_130", place.preload(LIBRARY), preload=(), CACHALOT_CONF="junk:1")
    native = place.native("allocate_130")
    assert (done.code, done.out) == (native.code, native.out)


@pytest.mark.skipif(bool(sanitizer.PATH), reason="a sanitizer needs more memory")
def test_a_sealed_program_without_cuda(place):
    """What does not use CUDA notices nothing, also where a system call too many is its end."""
    place.same("sealed", code=3)
    assert place.reports() == [] and place.left_pages() == []


@pytest.mark.parametrize("first", [True, False])
def test_two_copies(place, first):
    """An operator's and a user's: one serves and reports."""
    other = place.work / "other" / ("libcachalot.so" if first else "another.so")
    other.parent.mkdir()
    shutil.copy(LIBRARY, other)
    ours = place.run("allocate_130", preload=(other, LIBRARY) if first else (LIBRARY, other))
    assert (ours.code, ours.out) == (0, place.native("allocate_130").out)
    report = place.only_report()
    assert report.totals["requests"] > 0 and report["coverage"]["status"] == "full"


MOVES = """
import ctypes, os
os.mkdir("elsewhere")
os.chdir("elsewhere")
cudart = ctypes.CDLL("libcudart.so.13")
block = ctypes.c_void_p()
print(cudart.cudaMalloc(ctypes.byref(block), ctypes.c_size_t(1000)), os.listdir())
"""


def test_relative_names(place):
    """They mean the directory in which the process began."""
    place.findings.leaks = False
    ours = place.run(sys.executable, "-c", MOVES, CACHALOT_LOG="log", CACHALOT_PAGE_DIR="pages", CACHALOT_OUTPUT="out.json", CACHALOT_CONF="junk:1")
    assert (ours.code, ours.out) == (0, "0 []\n"), ours.err
    assert "junk:1" in (place.work / "log").read_text()
    assert (place.work / "pages").is_dir() and (place.work / "out.json").is_file() and not os.listdir(place.work / "elsewhere")


@pytest.mark.skipif(bool(sanitizer.PATH), reason="a sanitizer needs a larger stack")
@pytest.mark.parametrize("where", ["handler", "thread", "first"])
def test_exit_on_a_small_stack(place, where):
    """Also where somebody has put a report there that takes a deep stack to read."""
    place.same("exit_on_stack", where, code=9, CACHALOT_TRACE="t.trace")
    assert place.only_report()["exit"]["code"] == 9
    deep = place.work / "deep.json"
    deep.write_text("[" * 2000 + "]" * 2000)
    place.same("exit_on_stack", where, code=9, CACHALOT_OUTPUT=deep)


@pytest.mark.parametrize("output", ["out.json", None])
def test_a_directory_that_goes(place, output):
    """It is not made anew for the report: the page stays."""
    place.findings.leaks = False
    script = ("import ctypes, os; cudart = ctypes.CDLL('libcudart.so.13'); block = ctypes.c_void_p(); "
              "print(cudart.cudaMalloc(ctypes.byref(block), ctypes.c_size_t(1000))); os.rmdir(os.getcwd())")
    start = place.work / "start"
    start.mkdir()
    run = f"import os, sys; os.chdir({str(start)!r}); os.environ['LD_PRELOAD'] = {place.preload(LIBRARY)!r}; os.execv(sys.executable, [sys.executable, '-c', {script!r}])"
    ours = place.run(sys.executable, "-c", run, preload=(), CACHALOT_OUTPUT=output)
    assert (ours.code, ours.out, ours.err) == (0, "0\n", "")
    assert not start.exists() and len(place.left_pages()) == 1


def test_a_program_that_cleans_its_environment(place):
    """What the user named is where reports go."""
    place.findings.leaks = False
    script = ("import ctypes, os; os.environ.clear(); cudart = ctypes.CDLL('libcudart.so.13'); block = ctypes.c_void_p(); "
              "print(cudart.cudaMalloc(ctypes.byref(block), ctypes.c_size_t(1000)))")
    ours = place.run(sys.executable, "-c", script, CACHALOT_OUTPUT="named.json", CACHALOT_CONF="free_mode:fence")
    assert (ours.code, ours.out, ours.err) == (0, "0\n", "")
    assert [path.name for path in place.work.glob("*.json")] == ["named.json"]
    assert load(place.work / "named.json")["config"]["free_mode"]["value"] == "fence"
