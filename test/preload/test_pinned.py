"""Pinned host memory: as natively, but served from a pool."""

import resource

import pytest

from conftest import BUILD, MIB
from sanitizer import SLOWER

CLOCK = {"CACHALOT_SIM_CLOCK": "manual", "CACHALOT_SIM_LATENCY_NS": "1000"}
WITH_POLICY = BUILD / "test/preload/libcachalot_policy.so"
MODES = ["", "free_mode:fence", "free_mode:strict"]


def host(report):
    return report["host_memory_stats"]


def test_answers_are_the_drivers(place):
    place.same("pinned", "answers")


@pytest.mark.parametrize("mode", MODES)
def test_the_driver_is_asked_once_for_each_size(place, mode):
    ours = place.run("pinned", "hits", CACHALOT_CONF=mode)
    assert (ours.code, ours.err) == (0, "")
    assert ours.value('cachalot_sim_calls("cuMemHostAlloc") - made') <= 5
    assert ours.value('cachalot_sim_calls("cuMemFreeHost") - freed') == 0
    stats = host(place.only_report())
    assert stats["num_host_alloc"] <= 5 and stats["num_host_free"] == 0
    assert stats["active_requests.allocated"] == stats["active_requests.freed"] == 5000
    assert stats["active_bytes.current"] == 0 and stats["active_bytes.peak"] == 40 * MIB
    assert 40 * MIB <= stats["allocated_bytes.current"] <= 48 * MIB


def test_no_memory_may_be_locked(place):
    """The driver's limit is another one."""
    ours = place.run("pinned", "hits", prepare=lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0)))
    assert (ours.code, ours.err) == (0, "")
    assert ours.value('cachalot_sim_calls("cuMemHostAlloc") - made') <= 5


@pytest.mark.parametrize("conf", ["pinned:off", "cache:off"])
def test_it_can_be_switched_off(place, conf):
    ours = place.run("pinned", "hits", CACHALOT_CONF=conf)
    assert ours.value('cachalot_sim_calls("cuMemHostAlloc") - made') == 5000
    assert ours.value('cachalot_sim_calls("cuMemFreeHost") - freed') == 5000
    assert host(place.only_report())["num_host_alloc"] == 5000


@pytest.mark.parametrize("mode", MODES[:2])
def test_memory_waits_for_work_and_the_free_does_not(place, mode):
    ours = place.run("pinned", "fence", CACHALOT_CONF=mode)
    assert (ours.code, ours.err) == (0, "")
    assert (ours.value("cachalot_sim_unfinished() > 0"), ours.value("is_busy(next)")) == (1, 0)
    assert host(place.only_report())["num_host_alloc"] == 1  # one segment has room for both


def test_strict_frees_wait(place):
    place.same("pinned", "waits", CACHALOT_CONF="free_mode:strict")


@pytest.mark.parametrize("mode", MODES)
def test_what_the_host_sees_is_done(place, mode):
    place.same("pinned", "copies", CACHALOT_CONF=mode)


@pytest.mark.parametrize("what", ["capture", "contexts"])
def test_captures_and_contexts(place, what):
    ours = place.run("pinned", what)
    assert (ours.code, ours.err) == (0, "")
    assert host(place.only_report())["num_host_alloc"] <= 3


@pytest.mark.parametrize("how", ["destroy", "reset", "release"])
def test_memory_ends_with_its_context(place, how):
    place.same("pinned", how)
    stats = host(place.only_report())
    assert stats["allocated_bytes.current"] == stats["active_bytes.current"] == 0


@pytest.mark.parametrize("what", ["forked", "late", "threads", "registered"])
def test_as_natively(place, what):
    place.same("pinned", what)


def test_idle_memory_goes_back(place):
    ours = place.run("pinned", "idle")
    assert ours.value('cachalot_sim_calls("cuMemFreeHost") - before >= 8') == 1
    assert host(place.only_report())["allocated_bytes.current"] == 0


def test_idle_memory_goes_back_at_once_where_the_host_is_short(place):
    """With a part of 1 it always is."""
    ours = place.run("pinned", "at work", preload=(WITH_POLICY,), TEST_POLICY="host_part=1", CACHALOT_CONF="idle_return_s:off")
    assert (ours.code, ours.err) == (0, "")
    assert ours.value('cachalot_sim_calls("cuMemFreeHost") - before >= 8') == 1


def test_no_more_than_a_part_of_the_host_is_cached(place):
    """What is beyond is the driver's."""
    ours = place.run("pinned", "hits", preload=(WITH_POLICY,), TEST_POLICY="pinned_part=1000000")
    assert (ours.code, ours.err) == (0, "")
    assert ours.value('cachalot_sim_calls("cuMemHostAlloc") - made') >= 5000
    assert host(place.only_report())["allocated_bytes.current"] == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_full_host(place, mode):
    place.same("pinned", "full", CACHALOT_SIM_PINNED="64M", CACHALOT_CONF=mode)


@pytest.mark.parametrize("seed, threads, contexts, mode", [
    (1, 1, 1, ""), (2, 1, 2, ""), (3, 4, 1, ""), (4, 4, 2, ""), (5, 4, 2, "free_mode:fence"), (6, 2, 1, "free_mode:strict")])
def test_the_host_writes_to_no_memory_in_use(place, seed, threads, contexts, mode):
    operations = 8000 // threads // SLOWER
    ours = place.run("pinned_stress", seed, threads, operations, contexts, timeout=120, CACHALOT_CONF=mode, **CLOCK)
    assert (ours.code, ours.err) == (0, "")
    stats = host(place.only_report())
    assert stats["active_requests.current"] == 0
    assert stats["active_requests.allocated"] > operations * threads / 6


def test_the_stress_is_right_natively(place):
    native = place.native("pinned_stress", 7, 2, 2000 // SLOWER, 1, **CLOCK)
    assert (native.code, native.err) == (0, "")
