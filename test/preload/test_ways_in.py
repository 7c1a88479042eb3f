"""However a program reaches CUDA, each of its requests is counted exactly once."""

import re
import shutil
import subprocess
import sys

import pytest
import sanitizer

from conftest import COMMAND, EMULATOR, LIBRARY, PROGRAMS, SIM, load

ANOTHER = PROGRAMS / "libanother_preload.so"
ANOTHER_NEXT = PROGRAMS / "libask_next.so"
ANOTHER_DLSYM = PROGRAMS / "libanother_dlsym.so"
STAND_IN = PROGRAMS / "libstand_in.so"
SEEN = "seen ? seen() : 0"

CTYPES = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, block = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
for i in range(6):
    print(cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(1000)))
    if i < 5:
        print(cuda.cuMemFree_v2(block))
"""

CTYPES_RUNTIME = """
import ctypes
cudart = ctypes.CDLL("libcudart.so.13")
block = ctypes.c_void_p()
for i in range(6):
    print(cudart.cudaMalloc(ctypes.byref(block), ctypes.c_size_t(1000)))
    if i < 5:
        print(cudart.cudaFree(block))
"""


def check(report, requests=6, frees=5):
    assert report.totals["requests"] == requests
    assert report.totals["frees"] == frees
    assert report.totals["leaked_blocks"] == requests - frees
    assert report.totals["double_frees"] == 0
    assert report["coverage"]["status"] == "full"
    counters = report["coverage"]["counters"]
    assert (counters["forwarded_allocations"], counters["unseen_frees"],
            counters["init_calls"]) == (0, 0, 1)


@pytest.mark.parametrize("program", ["allocate_130", "allocate_131", "allocate_static", "allocate_113",
                                     "allocate_112",
                                     "allocate_driver"])
def test_linked(place, program):
    report = place.report(program)
    check(report)
    assert (report.totals["hits"], report.totals["device_alloc"]) == (3, 3)


def test_dlopen_and_dlsym(place):
    report = place.report("allocate_dlsym")
    check(report)
    assert (report["others"]["pool"]["allocated"], report["others"]["pool"]["freed"]) == (1, 1)


@sanitizer.unless_sanitized("its runtime must come first")
def test_opened_and_closed(place):
    """Not in front of anything; its thread goes on."""
    script = f'''
import _ctypes, ctypes, time
cuda, cachalot = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("{LIBRARY}")
context = ctypes.c_void_p()
assert cachalot.cuInit(0) == 0 and cachalot.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
_ctypes.dlclose(cachalot._handle)
time.sleep(1.5)
print("lives", flush=True)
'''
    done = place.run(sys.executable, "-c", script, preload=())
    assert (done.code, done.out, done.err) == (0, "lives\n", "")


@pytest.mark.parametrize("parameters, flags, itself", [(4, 0, 0), (4, 0, 1), (5, 0, 0), (5, 0, 1),
                                                       (5, 0, 3), (5, 2, 1),
                                                       (4, 2, 0)])
def test_cuGetProcAddress(place, parameters, flags, itself):
    report = place.report("allocate_proc_address", parameters, flags, itself)
    check(report)
    assert (report["others"]["pool"]["allocated"], report["others"]["pool"]["freed"]) == (1, 1)


@pytest.mark.parametrize("script", [CTYPES, CTYPES_RUNTIME])
def test_python_ctypes(place, script):
    check(place.report(sys.executable, "-c", script))


@pytest.mark.parametrize("cudart", ["130", "131", "static", "113"])
def test_plugin_with_a_cudart_of_its_own(place, cudart):
    check(place.report("load_plugins", PROGRAMS / f"liballocate_plugin_{cudart}.so"))


def test_two_cudarts_in_one_process(place):
    plugins = [PROGRAMS / f"liballocate_plugin_{cudart}.so" for cudart in ("130", "113", "static")]
    check(place.report("load_plugins", *plugins), 18, 15)


@pytest.mark.parametrize("stays", [(), ("130",), ("113",), ("130", "113")])
def test_plugins_come_and_go(place, stays):
    """Of the same layout, in the same place: each calls its own run-time all the same."""
    staying = [PROGRAMS / f"liballocate_plugin_{cudart}.so" for cudart in stays]
    turns = [PROGRAMS / f"liblast_error_{cudart}.so" for cudart in ("130", "113", "113", "130")]
    place.same("load_plugins", *staying, "close", *turns, *turns)


@pytest.mark.parametrize("plugin", ["plugin", "unlinked"])
def test_a_plugin_whose_constructor_waits_for_a_thread(place, plugin):
    """Which holds the loader's lock: what the thread calls may not need it."""
    report = place.report("load_in_thread", PROGRAMS / f"libload_in_thread_{plugin}.so")
    check(report, 1, 1)


def test_a_plugin_finds_the_driver_in_its_own_scope(place):
    check(place.report("load_plugins", PROGRAMS / "libdefault_plugin.so"), 1, 0)


@sanitizer.unless_sanitized("its runtime does not allow RTLD_DEEPBIND")
@pytest.mark.parametrize("asked", [(), ("libcuda.so.1",)], ids=["", "asked"])
@pytest.mark.parametrize("way", ["deep", "lazy"])
@pytest.mark.parametrize("plugin", ["130", "131", "static", "113", "112", "driver", "lazy"])
def test_a_plugin_that_is_bound_past_us(place, plugin, way, asked):
    """Its tables are led to us, also those that are protected, and those that are not filled yet."""
    report = place.report("load_deep", way, PROGRAMS / f"liballocate_plugin_{plugin}.so", *asked)
    check(report)
    assert report["coverage"]["counters"]["table_entries"] > 0
    if plugin != "driver":
        assert report["coverage"]["submissions"]["copies"] == 2


@pytest.mark.parametrize("program", ["allocate_130", "allocate_static", "allocate_driver"])
def test_a_driver_before_us(place, program):
    """A program that is linked to it would call it directly."""
    place.run(program, preload=(SIM / "libcuda.so.1", LIBRARY))
    report = place.only_report()
    check(report)
    assert (report["coverage"]["counters"]["table_entries"] > 0) == (program == "allocate_driver")


@sanitizer.unless_sanitized("its runtime must come first, and is one more hook")
def test_a_tool_before_a_plugin_that_is_bound_past_it(place):
    """What the plugin calls natively it calls in front of us: the tool gets none of its calls."""
    words = ["load_deep", "lazy", PROGRAMS / "liballocate_plugin_lazy.so"]
    native = place.run(*words, preload=(ANOTHER,))
    ours = place.run(*words, preload=(ANOTHER, LIBRARY))
    assert (native.code, ours.code, ours.out, ours.err) == (0, 0, native.out, "")
    check(place.only_report())


@pytest.mark.parametrize("driver", [11040, 12020, 13000, 14000])
def test_every_version_is_the_drivers_own(place, driver):
    """Also a later one, of which we know nothing, and with no place for a status; the same each time."""
    done = place.same("versions", CACHALOT_SIM_DRIVER=driver)
    assert ("cuMemAlloc 14000 0: 0 cuMemAlloc_v3" in done.out) == (driver == 14000)
    assert "cuMemAlloc 13000 0: 0 cuMemAlloc_v2" in done.out


def exported():
    """The names that the library has for others to find."""
    names = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
    return sorted(set(re.findall(r" [TWi] (cu\w+)$", names, re.M)))


OTHER_NAMES = ["cuMemAlloc", "cuDeviceGetName", "cuNoSuchFunction", "cudnnCreate", "cublasCreate_v2", "cudaNoSuchFunction",
               "cu", "c", "", "cuda", "dlsym", "custom"]
LIBRARIES = ("libcudart.so.13", "libcuda.so.1")
LOOK_UPS = {"none": ["look_up"], "dlopen": ["look_up", *LIBRARIES], "driver": ["look_up_driver", LIBRARIES[0]], "linked": ["look_up_linked"],
            **{f"plugin{kind}": ["load_plugins", PROGRAMS / f"liblook_up_plugin{kind}.so"] for kind in ("", "_driver", "_linked")}}


@pytest.mark.parametrize("disable", [None, 1])
@pytest.mark.parametrize("which", LOOK_UPS)
def test_names_and_errors_of_look_ups(place, which, disable):
    """What there is natively, and nothing else: where there is no CUDA, our own names are not there either."""
    names = OTHER_NAMES + (exported() if which == "none" else exported()[::20] + ["cudaMalloc", "cudaFree", "cuInit"])
    done = place.same(*LOOK_UPS[which], LOOK_UP_NAMES=" ".join(names), CACHALOT_DISABLE=disable)
    there = [name for name in ("cudaMalloc", "cuInit") if f"default {name}: found" in done.out]
    assert len(there) == {"none": 0, "plugin": 0, "driver": 2, "plugin_driver": 1}.get(which, 2)
    assert place.reports() == []


@pytest.mark.parametrize("which, handles", [("linked", {"default", "next", "program"}), ("plugin_linked", {"default"}),
                                            ("dlopen", {"default", "next", "program", "handle"})])
def test_where_there_is_cuda_look_ups_find_us(place, which, handles):
    """But what comes next after a plugin is not us, and a run-time's own handle has the run-time's function, whose calls of
    the driver come to us."""
    done = place.run(*LOOK_UPS[which], LOOK_UP_NAMES="cudaMalloc cuMemAlloc_v2 cuInit", LOOK_UP_OWNERS=1)
    owners = re.findall(r"^(\w+) (\w+): found.*\n  of /(\S+)$", done.out, re.M)
    ours = {(handle, name) for handle, name, owner in owners if owner == LIBRARY.name}
    assert {handle for handle, _ in ours} == handles
    assert {(handle, name) for handle, name, owner in owners if owner != LIBRARY.name and handle in handles} <= {("handle", "cudaMalloc")}


@sanitizer.unless_sanitized("its runtime must come first, and is one more hook")
def test_another_preload_asks_for_what_comes_after_it(place):
    """Which is us, and natively nothing."""
    for order in ((ANOTHER_NEXT, LIBRARY), (LIBRARY, ANOTHER_NEXT)):
        native = place.run("no_cuda", preload=(ANOTHER_NEXT,))
        ours = place.run("no_cuda", preload=order)
        assert (ours.code, ours.out, ours.err) == (native.code, native.out, native.err)
        assert "next: none" in ours.out


@pytest.mark.skipif(not (PROGRAMS / "ask_early").exists(), reason="not built here")
def test_a_program_that_asks_before_it_is_relocated(place):
    """Where dlopen would end it."""
    assert place.same("ask_early").value("has_cuda()") == 0


def test_a_library_behind_us_asks_for_what_comes_after_it(place):
    """Which is the driver's function, so it gets ours."""
    check(place.report("ask_driver_next"))


@pytest.mark.parametrize("way", ["next", "handle"])
@pytest.mark.parametrize("order", [(ANOTHER, LIBRARY), (LIBRARY, ANOTHER)], ids=["before us",
                                                                                 "after us"])
def test_another_interposer_of_linked_calls(place, order, way):
    native = place.run("count_another", preload=(ANOTHER,), ANOTHER_WAY=way)
    ours = place.run("count_another", preload=order, ANOTHER_WAY=way)
    assert (native.code, native.value(SEEN)) == (0, 6)
    # One that stands behind us is passed by: what is served never gets there, and our own calls
    # are no program's.
    assert (ours.code, ours.value(SEEN), ours.err) == (0, 6 if order[0] == ANOTHER else 0, "")
    report = place.only_report()
    check(report, 6, 0)
    assert report["coverage"]["hook_order"] == ", ".join(path.name for path in order)


@sanitizer.unless_sanitized("its runtime must come first, and is one more hook")
@pytest.mark.skipif(bool(EMULATOR), reason="the command starts programs of this machine")
@pytest.mark.parametrize("entry", ["path", "name", "a run of its own"])
def test_another_interposer_keeps_its_place(place, entry):
    """`cachalot run` leaves one of the same calls before us, and others behind us; summary and report say so."""
    more = {"CACHALOT_OUTPUT": "r.json", "LD_LIBRARY_PATH": f"{SIM}:{PROGRAMS}"}
    words = ["run", "--summary", PROGRAMS / "count_another"]
    named = ANOTHER.name if entry == "name" else ANOTHER
    if entry == "a run of its own":  # whose LD_PRELOAD has us already
        words = ["run", *COMMAND, *words]
    ours = place.cachalot(*words, LD_PRELOAD=f"{ANOTHER_NEXT}:{named}", **more)
    assert (ours.code, ours.value(SEEN)) == (0, 6), ours.err
    assert "hooks of cudaMalloc, in the order of calls: libanother_preload.so, libcachalot.so" in ours.err
    assert load(place.work / "r.json")["coverage"]["hook_order"] == "libanother_preload.so, libcachalot.so"


@pytest.mark.parametrize("order", [(ANOTHER, LIBRARY), (LIBRARY, ANOTHER)], ids=["before us",
                                                                                 "after us"])
def test_another_interposer_of_names_looked_up(place, order):
    native = place.run("count_another", "cuMemAlloc_v2", preload=(ANOTHER,))
    ours = place.run("count_another", "cuMemAlloc_v2", preload=order)
    assert (native.code, native.value(SEEN)) == (0, 0)
    assert (ours.code, ours.out, ours.err) == (0, native.out, "")
    check(place.only_report(), 6, 0)


def test_another_interposer_of_dlsym_behind_us(place):
    ours = place.run("count_another", "cuMemAlloc_v2", preload=(LIBRARY, ANOTHER_DLSYM))
    assert (ours.code, ours.err) == (0, "")
    check(place.only_report(), 6, 0)


def test_another_interposer_of_dlsym_before_us_is_said(place):
    """It takes libc's dlsym by its version, so look-ups pass us by: no harm, and it is said."""
    native = place.native("allocate_static")
    ours = place.run("allocate_static", preload=(ANOTHER_DLSYM, LIBRARY))
    assert (ours.code, ours.out, ours.err) == (native.code, native.out, "")
    report = place.only_report()
    assert report["coverage"]["status"] == "none"
    assert report.totals["requests"] == 0


STOOD_IN_FOR = {"130": ["allocate_130"], "131": ["allocate_131"], "static": ["allocate_static"], "113": ["allocate_113"], "112": ["allocate_112"],
                "proc address": ["allocate_proc_address", 5, 0, 1], "ctypes": [sys.executable, "-c", CTYPES]}


@sanitizer.unless_sanitized("its runtime, which comes first, defines dlopen")
@pytest.mark.parametrize("order", [(STAND_IN, LIBRARY), (LIBRARY, STAND_IN)], ids=["before us", "after us"])
@pytest.mark.parametrize("way", STOOD_IN_FOR)
def test_another_library_stands_in_for_the_driver(place, way, order):
    """As Nsight Compute's: what its cuGetProcAddress hands out is the driver's own, also what it does not have itself."""
    native = place.run(*STOOD_IN_FOR[way], preload=(STAND_IN,))
    ours = place.run(*STOOD_IN_FOR[way], preload=order)
    assert (native.code, ours.code, ours.out, ours.err) == (0, 0, native.out, "")
    report = place.only_report()
    check(report)
    assert report["others"]["pool"]["allocated"] == (way == "proc address")


def two_stages(place):
    """The environment of a driver in two stages."""
    folder = place.work / "driver"
    folder.mkdir()
    shutil.copy(PROGRAMS / "libtwo_stage.so", folder / "libcuda.so.1")
    shutil.copy(SIM / "libcuda.so.1", folder / "libsecond.so")
    return {"LD_LIBRARY_PATH": f"{folder}:{SIM}", "TWO_STAGE_SECOND": folder / "libsecond.so"}


@sanitizer.unless_sanitized("its runtime must come first, and is one more hook")
@pytest.mark.parametrize("program", ["allocate_130", "allocate_static", "allocate_proc_address"])
def test_a_driver_in_two_stages(place, program):
    """What its cuGetProcAddress hands out are functions of another object."""
    words = [program, *((5, 0, 1) if program == "allocate_proc_address" else ())]
    environment = two_stages(place)
    native = place.native(*words, **environment)
    ours = place.run(*words, **environment)
    assert (native.code, ours.code, ours.out, ours.err) == (0, 0, native.out, "")
    check(place.only_report())
    if EMULATOR:
        return
    done = place.cachalot("doctor", PROGRAMS / program, **environment)
    assert (done.code, "came through the cache, coverage full" in done.out) == (0, True), done.out


@sanitizer.unless_sanitized("its runtime must come first, and is one more hook")
def test_a_driver_in_two_stages_that_cannot_be_served(place):
    """Its second object does not export its functions by name: the report names it, and `doctor` refuses."""
    environment = two_stages(place)
    second = environment["TWO_STAGE_SECOND"]
    second.write_bytes(second.read_bytes().replace(b"\0cuMemAlloc_v2\0", b"\0cuMemAllocXv2\0", 1))  # in .dynstr
    native = place.native("allocate_static", **environment)
    ours = place.run("allocate_static", **environment)
    assert (native.code, ours.code, ours.out, ours.err) == (0, 0, native.out, "")
    said = f"go past us, and cannot be led back: {second}"
    report = place.only_report()
    assert report["coverage"]["status"] == "none" and any(said in reason for reason in report["coverage"]["reasons"])
    if EMULATOR:
        return
    done = place.cachalot("doctor", PROGRAMS / "allocate_static", **environment)
    assert done.code == 1 and said in done.out


@pytest.mark.parametrize("kind", ["address", "thread"])
def test_a_program_with_a_sanitizer(place, kind):
    """`cachalot run` has its runtime stay first; the library is one that knows no sanitizer."""
    program = PROGRAMS / f"allocate_{kind}"
    if not program.exists():
        pytest.skip("not built here")
    options = {"ASAN_OPTIONS": "detect_leaks=0"}
    native = place.native(program, **options)
    if native.code and "FATAL" in native.err:
        pytest.skip("the runtime cannot start here: addresses have too many random bits")
    ours = place.cachalot("run", program, **options)
    assert (ours.code, ours.out, ours.err) == (0, native.out, "")
    check(place.only_report())
