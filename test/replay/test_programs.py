"""Recorded PyTorch programs: what mapped memory reserves for what they need, and that this is enough."""

import functools

import pytest
import traces
from conftest import TOOL
from measure import BEHIND, MAPPED, NATIVE, RULES, figures, peaks, run
from promises import RECORDED, REPLACED, USUAL

PROGRAMS, GROWING = traces.names(traces.PROGRAMS), traces.names(traces.GROWING)
AT_RANDOM = ("gru_random_lengths", "unet_random_sizes")  # small programs, whose sizes change at random


@functools.cache
def of(kind, name):
    return figures(TOOL, traces.read(kind, name))


def replayed(name, behind=0):
    return run(TOOL, traces.read(traces.PROGRAMS, name), MAPPED, behind)


@pytest.mark.parametrize("name", PROGRAMS)
def test_reserved_is_what_is_needed(name):
    got = of(traces.PROGRAMS, name)
    assert got.keeps <= RECORDED and got.keeps <= got.by_rules


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("behind", BEHIND)
def test_a_busy_device_needs_little_more(name, behind):
    assert of(traces.PROGRAMS, name).late[behind] <= RECORDED


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_little_more_than_the_peak_is_enough(name):
    assert of(traces.PROGRAMS, name).failed[MAPPED] == 0


@pytest.mark.parametrize("name", GROWING)
def test_what_keeps_more_than_others(name):
    """These programs keep less than by PyTorch's rules, and no more of their requests fail: than by the rules, than natively."""
    got = of(traces.GROWING, name)
    assert got.keeps <= REPLACED and got.keeps < got.by_rules
    assert got.failed[MAPPED] <= got.failed[RULES] and (got.failed[MAPPED] <= got.failed[NATIVE] or name in AT_RANDOM)


def test_a_device_that_is_never_done_takes_no_mapping_down():
    got = [replayed("nmt_train", behind)["driver"] for behind in (0, 10**6)]
    assert [driver["behind_operations"] for driver in got] == [0, 10**6]
    assert got[0]["calls"]["chunk_unmap"]["count"] > 100 and got[1]["calls"]["chunk_unmap"]["count"] == 0


def test_what_moves_does_not_go_by_way_of_the_driver():
    """Idle chunks serve where they are needed, in handles that are as large as deeplab_train's blocks let them be."""
    got = replayed("deeplab_train")
    created, released = got["driver"]["calls"]["chunk_create"], got["driver"]["calls"]["chunk_release"]
    assert created["bytes"] <= USUAL * peaks(got)[0] and released["count"] <= 8
    assert created["bytes"] >= created["count"] * (3 << 20)


def test_there_are_all_of_them():
    assert len(PROGRAMS) >= 105 and len(GROWING) >= 6 and traces.names(traces.CERTIFIED) == ["gpt", "gptfix", "resnet50"]


def test_a_third_is_set_aside():
    """Another rule would show traces that are set aside."""
    for kind in (PROGRAMS, GROWING):
        assert 0.25 <= sum(map(traces.is_set_aside, kind)) / len(kind) <= 0.42
    assert [name for name in ("dcgan", "gru_train", "ivf_lists_grow", "unet_random_sizes") if traces.is_set_aside(name)] == ["dcgan", "ivf_lists_grow"]
