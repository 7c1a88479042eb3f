"""105 small PyTorch programs (test/gpu/traced), as GPUs ran them with PyTorch's cache off (57 an H100, serving_* and training_* an H200):
what mapped memory reserves for what they need, and that this is enough."""

import pytest
import traces
from conftest import peaks, replay

MAPPED = "expandable_segments:True"
RULES = "expandable_segments:False,thread_cache:off"
WITHIN = 1.05
OF = {"chat_server": 1.06}  # 1.0586: of 323 MiB two chunks too many; 1.046 to 1.071 after any change of the rules, and on an H100 1.052 to 1.057
BEHIND = {50: 1.07, 200: 1.07, 10**6: 1.07}  # operations that the device is behind, as on the GPU; the most are neural_ode's 1.066, 1.060, 1.063

NAMES = traces.names(traces.PROGRAMS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("programs")
    for name in NAMES:
        (place / f"{name}.csv").write_bytes(traces.read(traces.PROGRAMS, name))
    return place


@pytest.mark.parametrize("name", NAMES)
def test_reserved_is_what_is_needed(folder, name):
    path = folder / f"{name}.csv"
    requested, _, reserved = peaks(replay(path, "--conf", MAPPED))
    _, _, by_rules = peaks(replay(path, "--conf", RULES))
    assert reserved <= OF.get(name, WITHIN) * requested and reserved <= by_rules


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("behind", BEHIND)
def test_a_busy_device_needs_little_more(folder, name, behind):
    requested, _, reserved = peaks(replay(folder / f"{name}.csv", "--conf", MAPPED, "--behind", behind))
    assert reserved <= BEHIND[behind] * requested


@pytest.mark.parametrize("name", NAMES)
def test_a_little_more_than_the_peak_is_enough(folder, name):
    path = folder / f"{name}.csv"
    _, allocated, _ = peaks(replay(path, "--conf", RULES))
    assert replay(path, "--conf", MAPPED, "--capacity", int(WITHIN * allocated))["totals"]["ooms"] == 0


def test_a_device_that_is_never_done_takes_no_mapping_down(folder):
    got = [replay(folder / "nmt_train.csv", "--conf", MAPPED, "--behind", behind)["driver"] for behind in (0, 10**6)]
    assert [driver["behind_operations"] for driver in got] == [0, 10**6]
    assert got[0]["calls"]["chunk_unmap"]["count"] > 100 and got[1]["calls"]["chunk_unmap"]["count"] == 0


def test_what_moves_does_not_go_by_way_of_the_driver(folder):
    """What is idle serves where it is needed, in handles that are as large as deeplab_train's blocks let them be."""
    driver = replay(folder / "deeplab_train.csv", "--conf", MAPPED)["driver"]["calls"]
    assert driver["chunk_create"]["bytes"] <= 1.05 * 4501 * (1 << 20) and driver["chunk_release"]["count"] <= 8
    assert driver["chunk_create"]["bytes"] >= driver["chunk_create"]["count"] * (3 << 20)


def test_there_are_all_of_them():
    assert len(NAMES) == 105


# Three of 24 programs that were written later (traced/growing.py): on GPUs they kept 1.107, 1.047 and 1.066 at most. And three of seventeen later ones, small and of sizes that differ by step:
# 1.090, 1.056; the last is a snapshot of PyTorch's. What they keep of what they need, and how many requests fail at 1.05 of it. tried.md, "Small programs".
KEPT = {
    "ivf_lists_grow": (1.11, 4), "llm_paged_prefill_growing_cache": (1.035, 0), "sac_pixels_episode_replay": (1.075, 0),
    "unet_random_sizes": (1.09, 1), "gru_random_lengths": (1.06, 1), "encoder_growing_length": (1.07, 2),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_keeps_more_than_others(tmp_path, name):
    """It shall not get worse, nor near PyTorch's rules, nor fail more often than by these."""
    (tmp_path / "t.csv").write_bytes(traces.read(traces.GROWING, name))
    most, fail = KEPT[name]
    requested, _, reserved = peaks(replay(tmp_path / "t.csv", "--conf", MAPPED))
    _, allocated, by_rules = peaks(replay(tmp_path / "t.csv", "--conf", RULES))
    assert reserved <= most * requested and 1.05 * most * requested < by_rules
    capacity = ("--capacity", int(WITHIN * allocated))
    failed, natively, failed_by_rules = (replay(tmp_path / "t.csv", "--conf", conf, *capacity)["totals"]["ooms"] for conf in (MAPPED, "cache:off", RULES))
    assert failed <= fail and failed <= failed_by_rules and (failed <= natively or name in ("unet_random_sizes", "gru_random_lengths"))
