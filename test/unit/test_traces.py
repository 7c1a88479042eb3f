"""Recorded training runs, replayed through the real allocator, give the certified figures to the byte."""

import os
import pathlib
import subprocess
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "replay"))
import traces  # noqa: E402

REPLAY = os.environ["CACHALOT_REPLAY"]
CERTIFIED = {  # mallocs, peak requested, peak allocated, peak reserved, segments
    "gpt": (33987, 7156524048, 7168361472, 11114905600, 128),
    "gptfix": (34169, 7255945424, 7273785344, 8864661504, 127),
    "resnet50": (21940, 5830299284, 5840295936, 8965324800, 149),
}
NAMES = os.environ.get("CACHALOT_TEST_TRACES", ",".join(CERTIFIED)).split(",")


def replay(name, *arguments):
    out = subprocess.run([*REPLAY.split(), *arguments], input=traces.read(traces.CERTIFIED, name),
                         stdout=subprocess.PIPE, check=True).stdout.decode().split()
    return dict(zip(out[::2], map(int, out[1::2])))


@pytest.mark.parametrize("name", NAMES)
def test_certified_figures(name):
    got = replay(name)
    want = dict(zip(("mallocs", "peak_requested", "peak_allocated", "peak_reserved", "segments"),
                    CERTIFIED[name]))
    assert got == {**want, "ooms": 0}


@pytest.mark.parametrize("name", NAMES)
def test_a_device_of_exactly_the_peak_is_enough(name):
    peak = CERTIFIED[name][3]
    got = replay(name, "", str(peak))
    assert got["ooms"] == 0 and got["peak_reserved"] == peak


@pytest.mark.parametrize("name", NAMES)
def test_max_split_size_never_changes_what_was_requested(name):
    got = replay(name, "max_split_size_mb:128")
    assert got["mallocs"] == CERTIFIED[name][0]
    assert got["peak_requested"] == CERTIFIED[name][1]


@pytest.mark.parametrize("name", CERTIFIED)
def test_a_thread_cache_changes_the_peaks_of_nothing_and_adds_little(name):
    """What is used is booked to the byte; what lies in the cache costs at most four small segments."""
    mallocs, requested, allocated, reserved, _ = CERTIFIED[name]
    got = replay(name, "thread_cache:on")
    assert (got["mallocs"], got["peak_requested"], got["peak_allocated"]) == (mallocs, requested, allocated)
    assert reserved <= got["peak_reserved"] <= reserved + 4 * (2 << 20)
