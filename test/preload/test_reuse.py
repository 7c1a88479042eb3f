"""When freed memory is handed out again. The simulated device ends a program whose unordered work
meets in the same bytes, so a stress that ends well had no two owners of a byte."""

import pytest

from conftest import BUILD, LIBRARY, MIB

MANUAL = {"CACHALOT_SIM_CLOCK": "manual", "CACHALOT_SIM_LATENCY_NS": "1000"}
UNSAFE = BUILD / "test/preload/libcachalot_unsafe.so"
SPINS = ["free", "used", "another", "async"]


@pytest.mark.parametrize("seed, threads, operations", [(1, 1, 60000), (2, 1, 60000), (3, 3, 30000),
                                                       (4, 8, 8000)])
def test_stress(place, seed, threads, operations):
    ours = place.run("reuse_stress", seed, threads, operations, **MANUAL)
    assert (ours.code, ours.out, ours.err) == (0, "cachalot_sim_unfinished(): 0\n", "")
    report = place.only_report()
    assert report.totals["allocated_bytes"] == report.totals["requested_bytes"] == 0
    assert report.totals["requests"] == report.totals["frees"] > threads * operations / 3
    assert report.totals["hit_ratio"] > 0.5
    assert report.totals["ooms"] == 0


def test_stress_when_memory_is_short(place):
    ours = place.run("reuse_stress", 5, 3, 8000, CACHALOT_SIM_CAPACITY="400M",
                     CACHALOT_CONF="memory_limit_mb:360", **MANUAL)
    assert (ours.code, ours.err) == (0, "")
    report = place.only_report()
    assert report.totals["requests"] == report.totals["frees"]
    assert report.totals["peak_reserved_bytes"] <= 360 * MIB


@pytest.mark.parametrize("way", [{"CACHALOT_CONF": "free_mode:strict"},
                                 {"CACHALOT_SIM_DRIVER": "12040"}])
def test_stress_with_frees_that_wait(place, way):
    ours = place.run("reuse_stress", 6, 3, 5000, **MANUAL, **way)
    assert (ours.code, ours.err) == (0, "")
    assert place.only_report().totals["fences"] == 0


def test_stress_finds_unsafe_reuse(place):
    """Otherwise it tests nothing."""
    ours = place.run("reuse_stress", 1, 1, 60000, preload=(UNSAFE,), **MANUAL)
    assert ours.code == -6
    assert "cachalot-sim: unordered work touches the same bytes" in ours.err


def test_stress_is_right_natively(place):
    native = place.native("reuse_stress", 7, 2, 3000, **MANUAL)
    assert (native.code, native.err) == (0, "")


@pytest.mark.parametrize("way", [{}, {"CACHALOT_CONF": "free_mode:strict"},
                                 {"CACHALOT_CONF": "cache:off"}, {"CACHALOT_SIM_DRIVER": "12040"}])
@pytest.mark.parametrize("spin", SPINS)
def test_a_spinning_kernel_is_not_waited_for(place, spin, way):
    ours = place.run("spin", spin, timeout=15, **way)
    native = place.native("spin", spin, timeout=15, **way)
    assert (native.code, ours.code, ours.out, ours.err) == (0, 0, native.out, "")


@pytest.mark.parametrize("way", [{"CACHALOT_CONF": "memory_limit_mb:32"},
                                 {"CACHALOT_SIM_CAPACITY": "33M"}])
@pytest.mark.parametrize("spin", ["free", "used"])
def test_a_spinning_kernel_is_not_waited_for_when_memory_is_short(place, spin, way):
    ours = place.run("spin", spin, timeout=15, **way)
    native = place.native("spin", spin, timeout=15, **way)
    assert (native.code, ours.code, ours.out, ours.err) == (0, 0, native.out, "")


def test_another_threads_free_while_a_kernel_spins_and_memory_is_short(place):
    """Natively there is no memory; with fences we wait a while for what that thread frees, but not for ever. On a lane it
    is reused at once."""
    short = {"CACHALOT_SIM_CAPACITY": "63M"}
    ours = place.run("spin", "another", timeout=40, **short)
    assert (ours.code, ours.err) == (0, "") and "cuMemAlloc(&again, BLOCK): 0" in ours.out
    ours = place.run("spin", "another", timeout=40, CACHALOT_CONF="free_mode:fence", **short)
    native = place.native("spin", "another", timeout=15, **short)
    assert (native.code, ours.code, ours.out, ours.err) == (0, 0, native.out, "")


@pytest.mark.parametrize("mode", ["free_mode:async", "free_mode:fence", "free_mode:strict"])
def test_orders_that_end_natively_end(place, tmp_path, mode):
    """Frees, mallocs and a spinning kernel that the host or another stream feeds, in every order."""
    native = place.native("hang", "note", tmp_path / "orders", 9, timeout=60)
    assert native.code == 0 and '"hang_natively": 0,' in native.out
    ours = place.run("hang", "check", tmp_path / "orders", 9, timeout=120, CACHALOT_CONF=mode)
    assert (ours.code, ours.err) == (0, ""), ours.out


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


def test_an_error_that_passes_is_only_said(place):
    """Neither mark nor wait for one free: its block waits for the next one's, and service goes on."""
    failing = "cuCtxRecordEvent:3:999,cuCtxRecordEvent:4:999,cuCtxSynchronize:1:999"
    ours = place.run("driver_errors", 20, CACHALOT_SIM_FAIL=failing)
    assert ours.code == 0 and all(line.endswith(": 0") for line in ours.out.splitlines()), ours.out
    report = place.only_report()
    assert report.warned("device 0: waiting failed (error 999)") == 1
    assert (report.totals["requests"], report.totals["frees"]) == (20, 20)
    assert report.totals["allocated_bytes"] == report.statistic("active_bytes") == 0
