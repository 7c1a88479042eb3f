"""When freed memory is handed out again: what may wait, and for how long, and errors. (That it is never handed out too early:
test_stress.py.)"""

import os
import sys

import pytest

import sanitizer

from conftest import Place

EACH = 3 if os.environ.get("CACHALOT_STRESS_SHARE", "1") == "1" else 9  # of the orders, one in so many
MODES = ["free_mode:async", "free_mode:fence", "free_mode:strict"]
SPINS = ["free", "used", "another", "async"]


@pytest.mark.parametrize("way", [{}, {"CACHALOT_CONF": "free_mode:strict"},
                                 {"CACHALOT_CONF": "cache:off"}, {"CACHALOT_SIM_DRIVER": "12040"}])
@pytest.mark.parametrize("spin", SPINS)
def test_a_spinning_kernel_is_not_waited_for(place, spin, way):
    ours = place.run("spin", spin, timeout=60, **way)
    native = place.native("spin", spin, timeout=60, **way)
    assert (native.code, ours.code, ours.out, ours.err) == (0, 0, native.out, "")


@pytest.mark.parametrize("why", [{"CACHALOT_SIM_DRIVER": 12040}, {"CACHALOT_SIM_FAIL": "cuCtxRecordEvent:1+:801"}])
@pytest.mark.parametrize("mode", MODES)
def test_without_context_events_the_report_says_that_frees_wait(place, mode, why):
    report = place.report("spin", "used", CACHALOT_CONF=mode, **why)
    asked = mode.split(":")[1]
    falls_back = asked != "strict"
    assert report["config"]["free_mode"]["value"] == asked + (": strict, because of the driver" if falls_back else "")
    assert report.warned("free_mode:strict is in force") == falls_back


@pytest.mark.parametrize("way", [{"CACHALOT_CONF": "memory_limit_mb:32"},
                                 {"CACHALOT_SIM_CAPACITY": "33M"}])
@pytest.mark.parametrize("spin", ["free", "used"])
def test_a_spinning_kernel_is_not_waited_for_when_memory_is_short(place, spin, way):
    ours = place.run("spin", spin, timeout=60, **way)
    native = place.native("spin", spin, timeout=60, **way)
    assert (native.code, ours.code, ours.out, ours.err) == (0, 0, native.out, "")


@sanitizer.unless_sanitized("the order depends on the pace")
def test_another_threads_free_while_a_kernel_spins_and_memory_is_short(place):
    """Natively there is no memory; with fences we wait a while for what that thread frees, but not for ever. On a lane it
    is reused at once."""
    short = {"CACHALOT_SIM_CAPACITY": "63M"}
    ours = place.run("spin", "another", timeout=40, **short)
    assert (ours.code, ours.err) == (0, "") and "cuMemAlloc(&again, BLOCK): 0" in ours.out
    ours = place.run("spin", "another", timeout=40, CACHALOT_CONF="free_mode:fence", **short)
    native = place.native("spin", "another", timeout=60, **short)
    assert (native.code, ours.code, ours.out, ours.err) == (0, 0, native.out, "")


@pytest.fixture(scope="module")
def orders(tmp_path_factory):
    """Every third order (or fewer) of frees, mallocs and a spinning kernel, and whether it ends natively."""
    native = Place(tmp_path_factory.mktemp("orders"))
    path = native.work / "orders"
    done = native.native("hang", "note", path, EACH, timeout=100)
    native.close()
    assert done.code == 0 and '"hang_natively": 0,' in done.out
    return path


@pytest.mark.parametrize("mode", MODES)
def test_orders_that_end_natively_end(place, orders, mode):
    """The host or another stream feeds the spinning kernel, from one thread or while a second one frees."""
    ours = place.run("hang", "check", orders, EACH, timeout=120, CACHALOT_CONF=mode)
    assert (ours.code, ours.err) == (0, ""), ours.out


@pytest.mark.parametrize("mode", MODES)
def test_frees_in_a_stream_wait_for_nothing(place, mode):
    ours = place.run("spin_in_stream", timeout=120, CACHALOT_CONF=mode)
    assert (ours.code, ours.out, ours.err) == (0, "begun: 5760\n", "")


@sanitizer.unless_sanitized("the order depends on the pace")
def test_the_known_limit_of_lanes(place):
    """A thread frees while its kernel waits for what another thread submits elsewhere later: named at the head of lane.c. No
    other order that ends natively may hang."""
    seconds = {"free_mode:async": 1, "free_mode:fence": 40, "free_mode:strict": 40}
    ended = {mode: place.run("spin_limit", seconds[mode], CACHALOT_CONF=mode).value("ended") for mode in MODES}
    assert ended == {"free_mode:async": 0, "free_mode:fence": 1, "free_mode:strict": 1}
    assert place.native("spin_limit", 40).value("ended") == 1


@pytest.mark.parametrize("conf", ["", "thread_cache:off"])
def test_a_handle_that_comes_back_before_its_stream_is_gone(place, conf):
    race = {"CACHALOT_CONF": conf, "CACHALOT_SIM_CLOCK": "manual", "CACHALOT_SIM_DELAY": "cuStreamDestroy_v2:1"}
    ours = place.run("stream_race", 150, **race)
    assert (ours.code, ours.out, ours.err) == (0, "met: 150\n", "")


@pytest.mark.parametrize("mode", MODES)
def test_each_thread_has_a_default_stream_of_its_own(place, mode):
    ours = place.run("stream_of_each", CACHALOT_CONF=mode, CACHALOT_SIM_CLOCK="manual")
    assert (ours.code, ours.err) == (0, "")
    assert mode != "free_mode:async" or (ours.value("same"), place.only_report().counter("num_lane_joins")) == (7, 4)


def test_a_fence_that_cannot_be_recorded_loses_nothing(place):
    for failing in ("cuCtxRecordEvent:3", "cuCtxRecordEvent:1+:999", "cuEventCreate:1",
                    "cuEventCreate:2+", "cuEventQuery:1",
                    "cuEventQuery:1+", "cuCtxRecordEvent:1+:801",
                    "cuThreadExchangeStreamCaptureMode:1+"):
        place.same("driver_errors", 20, CACHALOT_SIM_FAIL=failing)
        report = place.reports()[-1]
        assert (report.totals["requests"], report.totals["frees"]) == (20, 20), failing
        assert report.totals["allocated_bytes"] == 0, failing


def test_an_error_of_the_program_shows_in_its_free(place):
    """Work that failed: natively the free returns its error, as does every call from then on. On a lane, where a free asks
    the driver nothing, the next call of the program's own says it."""
    failing = {"CACHALOT_SIM_FAIL": "cuCtxRecordEvent:3+:700,cuCtxSynchronize:1+:700,"
               "cuMemFree_v2:1+:700,cuMemAlloc_v2:2+:700"}
    ours = place.run("driver_errors", 5, CACHALOT_CONF="free_mode:fence", **failing)
    lines = [line for line in ours.out.splitlines() if "cuMem" in line]
    assert lines[5] == "cuMemFree(block): 700"
    assert lines[6] == "cuMemAlloc(&block, 3 * MIB): 700"
    assert place.only_report().warned("device 0: the context is broken (error 700)") == 1


@pytest.mark.parametrize("free", [0, 1])
def test_an_error_that_passes_is_only_said(place, free):
    """Neither mark nor wait for one free: its block waits for the next one's, and service goes on. Nothing to say if the driver
    still waits as it does in its own free."""
    failing = "cuCtxRecordEvent:3:999,cuCtxRecordEvent:4:999,cuCtxSynchronize:1:999" + free * ",cuMemFree_v2:1:999"
    ours = place.run("driver_errors", 20, CACHALOT_SIM_FAIL=failing)
    assert ours.code == 0 and all(line.endswith(": 0") for line in ours.out.splitlines()), ours.out
    report = place.only_report()
    assert report.warned("device 0: waiting failed (error 999)") == free
    assert (report.totals["requests"], report.totals["frees"]) == (20, 20)
    assert report.totals["allocated_bytes"] == report.statistic("active_bytes") == 0


WITHOUT_REGISTERING = """
import ctypes, os, struct
barrier = {"x86_64": 324, "aarch64": 283}[os.uname().machine]
code = [(0x20, 0, 0, 0), (0x15, 0, 3, barrier), (0x20, 0, 0, 16), (0x15, 0, 1, 1 << 4), (0x06, 0, 0, 0x00050001),
        (0x06, 0, 0, 0x7FFF0000)]
lines = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in code))
head = ctypes.create_string_buffer(struct.pack("@HP", len(code), ctypes.addressof(lines)))
libc, cudart = ctypes.CDLL(None, use_errno=True), ctypes.CDLL("libcudart.so.13")
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, head, 0, 0) == 0
assert libc.syscall(barrier, 1 << 4, 0, 0) == -1
block, stream = ctypes.c_void_p(), ctypes.c_void_p()
assert cudart.cudaStreamCreate(ctypes.byref(stream)) == 0
for i in range(200):
    assert cudart.cudaMalloc(ctypes.byref(block), ctypes.c_size_t(1000)) == 0
    assert cudart.cudaMemsetAsync(block, 1, ctypes.c_size_t(1000), stream if i < 10 and i % 2 else None) == 0
    if i < 10:
        assert cudart.cudaDeviceSynchronize() == 0
    assert cudart.cudaFree(block) == 0
"""


def test_barriers_are_prepared_before_there_are_threads(place):
    """Later the kernel takes 10 to 20 ms for it. A program whose seccomp filter forbids it by then shows when it was."""
    report = place.report(sys.executable, "-c", WITHOUT_REGISTERING)
    assert report.counter("num_lane_frees") > 100
