"""Random work: more than ten million operations. The simulated device ends a program whose unordered work meets in the same
bytes, so a run that ends well had no two owners of a byte; one that hangs runs into its time limit."""

import os

import pytest

from conftest import BUILD, MIB

CLOCK = {"CACHALOT_SIM_CLOCK": "manual", "CACHALOT_SIM_LATENCY_NS": "1000", "CACHALOT_SIM_CAPACITY": "64G"}
UNSAFE = BUILD / "test/preload/libcachalot_unsafe.so"
SHARE = int(os.environ.get("CACHALOT_STRESS_SHARE", "1"))  # of the operations, one in so many: checked and emulated builds
ONE, SECOND, PEER = 1, 2, 3  # contexts


def stress(place, seed, threads, operations, contexts=ONE, **environment):
    """Runs it and returns its report."""
    more = {**CLOCK, "CACHALOT_SIM_DEVICES": "2" if contexts == PEER else "1", **environment}
    ours = place.run("reuse_stress", seed, threads, operations // SHARE, contexts, timeout=150, **more)
    assert (ours.code, ours.err) == (0, "")
    assert ours.value("cachalot_sim_unfinished()") == 0
    assert ours.value("operations") >= threads * (operations // SHARE)
    report = place.reports()[-1]
    totals = report.totals
    assert totals["allocated_bytes"] == totals["requested_bytes"] == totals["ooms"] == 0
    assert totals["requests"] == totals["frees"] > threads * operations // SHARE / 4
    return report


def check_lane_use(report, *least):
    """Was each of its ways used so often? Short runs may miss one."""
    use = [report.counter(f"num_lane_{name}") for name in ("frees", "marks", "joins", "leaves")]
    assert SHARE > 1 or all(count > enough for count, enough in zip(use, least)), use


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_one_thread(place, seed):
    """A lane that is left has come back, but for the first."""
    report = stress(place, seed, 1, 1_000_000)
    check_lane_use(report, 80_000, 50_000, 8_000, 3_000)
    assert report.totals["hit_ratio"] > 0.9 and report.totals["fences"] > 100_000 // SHARE


@pytest.mark.parametrize("seed, threads, operations", [(11, 3, 400_000), (12, 3, 400_000), (13, 2, 500_000), (14, 8, 100_000)])
def test_threads(place, seed, threads, operations):
    check_lane_use(stress(place, seed, threads, operations), 500, 500, 500, 10)


@pytest.mark.parametrize("seed, threads, operations, delays", [
    (21, 3, 100_000, "30"), (22, 8, 40_000, "100"), (23, 3, 200_000, "cuCtxRecordEvent:10"),
    (24, 3, 200_000, "cuLaunchKernel:20,cuMemsetD8Async:20,cuLaunchKernelEx:20"), (25, 8, 40_000, "cuStreamDestroy_v2:2")])
def test_threads_that_are_held_up_in_the_driver(place, seed, threads, operations, delays):
    stress(place, seed, threads, operations, CACHALOT_SIM_DELAY=delays)


@pytest.mark.parametrize("seed, threads, operations, contexts", [
    (31, 1, 600_000, SECOND), (32, 3, 200_000, SECOND), (33, 1, 400_000, PEER), (34, 2, 300_000, PEER)])
def test_two_contexts(place, seed, threads, operations, contexts):
    stress(place, seed, threads, operations, contexts)


@pytest.mark.parametrize("way", [{"CACHALOT_CONF": "free_mode:fence"}, {"CACHALOT_CONF": "free_mode:strict"},
                                 {"CACHALOT_SIM_DRIVER": "12040"}])
def test_other_ways_to_free(place, way):
    for seed, threads, operations in (41, 1, 700_000), (42, 3, 200_000):
        report = stress(place, seed, threads, operations, **way)
        assert report.totals["fences"] > 0 or way.get("CACHALOT_CONF") != "free_mode:fence"


def test_short_memory(place):
    report = stress(place, 51, 3, 20_000, CACHALOT_SIM_CAPACITY="700M", CACHALOT_CONF="memory_limit_mb:640")
    assert report.totals["peak_reserved_bytes"] <= 640 * MIB


def test_unsafe_reuse_is_found(place):
    """Otherwise it tests nothing; test/planted has more such bugs."""
    ours = place.run("reuse_stress", 1, 1, 60000, preload=(UNSAFE,), **CLOCK)
    assert ours.code == -6
    assert "cachalot-sim: unordered work touches the same bytes" in ours.err


@pytest.mark.parametrize("seed, threads, contexts", [(61, 1, ONE), (62, 3, SECOND), (63, 2, PEER)])
def test_it_is_right_natively(place, seed, threads, contexts):
    native = place.native("reuse_stress", seed, threads, 100_000 // SHARE, contexts, **CLOCK,
                          CACHALOT_SIM_DEVICES="2" if contexts == PEER else "1")
    assert (native.code, native.err) == (0, "")
