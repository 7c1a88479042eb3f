"""Mapped memory (expandable_segments:True): what is reserved for what is used, what moving it costs, and that nothing fails which
fits natively. The figures that the project promises; what the traces give is in footprint.md."""

import json
import resource

import caches
import pytest
import training
import workloads
from conftest import command, peaks, replay, trace_of, write

MAPPED = "expandable_segments:True"
MOST = 1 << 20  # of a small block
RULES = "expandable_segments:False,thread_cache:off"
STEPS_MS = {"gpt": 30 * 115, "gptfix": 30 * 26, "resnet50": 30 * 100}  # what the recorded runs took on an H200
WASTE = {"gpt": 11114905600, "gptfix": 8864661504, "resnet50": 8965324800}  # reserved by PyTorch's rules


def made(tmp_path, name):
    path = tmp_path / f"{name}.csv"
    path.write_text(getattr(workloads, name)().text())
    return path


def per_requested(document):
    requested, _, reserved = peaks(document)
    return reserved / requested


@pytest.mark.parametrize("name", STEPS_MS)
def test_recorded_runs(name):
    got = replay(trace_of(name), "--conf", MAPPED)
    requested, _, reserved = peaks(got)
    assert reserved <= 1.03 * requested
    assert got["driver"]["steady_cost_ns"] / 1e6 <= 0.01 * STEPS_MS[name]
    calls, counters = got["driver"]["calls"], got["devices"][0]["counters"]
    assert calls["chunk_unmap"]["count"] == counters["num_unmaps"]
    assert calls["chunk_allow"] == {**calls["chunk_map"], "cost_ns": 33_000 * counters["num_maps"]}


@pytest.mark.parametrize("counts, size", [((10_000, 40_000), MOST), ((1, 4), 128 << 30)])
def test_growing_does_not_look_at_all_there_is(tmp_path, counts, size):
    """Four times as many blocks, or one as large, take four times as long, not sixteen: walks over slots and chunks were most of it. It is
    enough that three of nine pairs of runs say so: a machine that others use, too, may be half as fast a moment later."""
    paths = []
    for count in counts:
        paths.append(tmp_path / f"{count}.csv")
        blocks = count if size == MOST else 1
        paths[-1].write_text("op,id,bytes,stream\n" + "".join(f"a,{i},{count * size // blocks},0\n" for i in range(blocks)))
    pairs = [[replay(path, "--conf", MAPPED)["speed"]["seconds"] for path in paths] for _ in range(9)]
    ratios = sorted(many / few for few, many in pairs)
    assert ratios[2] < 9, ratios


@pytest.mark.parametrize("name", WASTE)
def test_waste_is_gone(name):
    """Of what PyTorch's rules waste, no more than a twentieth is left in each."""
    requested, _, reserved = peaks(replay(trace_of(name), "--conf", MAPPED))
    assert 1 - (reserved - requested) / (WASTE[name] - requested) >= 0.95


def test_what_repeats_needs_no_driver_call():
    got = replay(trace_of("gptfix"), "--conf", MAPPED)
    moving = sum(got["driver"]["calls"][call]["cost_ns"] or 0 for call in ("chunk_create", "chunk_map", "chunk_allow", "chunk_unmap"))
    assert moving > 0 and got["driver"]["steady_cost_ns"] < 0.001 * moving


@pytest.mark.parametrize("name", workloads.ALL)
def test_programs_of_other_kinds(tmp_path, name):
    path = made(tmp_path, name)
    assert per_requested(replay(path, "--conf", MAPPED)) <= 1.05 < per_requested(replay(path, "--conf", "expandable_segments:False"))


def test_blocks_of_a_granule_that_are_all_replaced(tmp_path):
    """The worst case, far from 1.05: tried.md has why. It shall not get worse, nor near what PyTorch's rules keep."""
    ours, rules = [], []
    for seed in range(8):
        path = tmp_path / f"{seed}.csv"
        path.write_text(workloads.chat(seed).text())
        ours.append(per_requested(replay(path, "--conf", MAPPED)))
        rules.append(per_requested(replay(path, "--conf", RULES)))
    assert sum(ours) / len(ours) <= 1.11 < 1.25 < sum(rules) / len(rules)


@pytest.mark.parametrize("name", [*STEPS_MS, *workloads.ALL])
def test_a_little_more_than_the_peak_is_enough(tmp_path, name):
    path = trace_of(name) if name in STEPS_MS else made(tmp_path, name)
    _, allocated, _ = peaks(replay(path, "--conf", RULES))
    got = replay(path, "--conf", MAPPED, "--capacity", int(1.05 * allocated))
    assert got["totals"]["ooms"] == 0 and not got["devices"][0]["counters"]["native_since_request"]


def test_handles_are_small_where_memory_is_short(tmp_path):
    """Where natively some requests fail, so that nothing is left for what large handles lose, no more fail."""
    path = made(tmp_path, "sessions")
    cap = ("--capacity", int(1.03 * peaks(replay(path, "--conf", MAPPED))[1]))
    natively = replay(path, "--conf", "cache:off", *cap)["totals"]["ooms"]
    assert natively > replay(path, "--conf", MAPPED, *cap)["totals"]["ooms"]
    assert replay(path, "--conf", MAPPED, "--capacity", int(1.05 / 1.03 * cap[1]))["totals"]["ooms"] == 0


def test_tenants_come_and_go(tmp_path):
    path = made(tmp_path, "tenants")
    failed = replay(path, "--conf", "expandable_segments:False,memory_limit_mb:8192")
    got = replay(path, "--conf", f"{MAPPED},memory_limit_mb:8192")
    assert (failed["totals"]["ooms"], got["totals"]["ooms"]) == (1, 0)
    assert got["totals"]["peak_reserved_bytes"] <= 6 << 30


def test_random_sizes(tmp_path):
    """Twenty thousand operations without a cap."""
    path = tmp_path / "storm.csv"
    path.write_text(workloads.storm(20000).text())
    got = replay(path, "--conf", MAPPED)
    assert got["totals"]["peak_reserved_bytes"] <= 1.05 * got["totals"]["peak_allocated_bytes"]


@pytest.mark.parametrize("name, behind, ratio, failures", [
    ("features", 0, 1.05, 4), ("features", 200, 1.07, 40), ("replaced", 0, 1.05, 0), ("replaced", 200, 1.05, 0)])
def test_sizes_that_do_not_come_again(tmp_path, name, behind, ratio, failures):
    """On a device that has room, where each block, also a small one, might have chunks of its own; and on one that has not (of `features`
    natively more than three thousand requests fail there)."""
    path = made(tmp_path, name)
    late = ("--behind", behind) if behind else ()
    requested, allocated, reserved = peaks(replay(path, "--conf", MAPPED, "--capacity", 80 << 30, *late))
    assert reserved <= ratio * requested
    got = replay(path, "--conf", MAPPED, "--capacity", int(1.05 * allocated), *late)
    assert got["totals"]["ooms"] <= failures


@pytest.mark.parametrize("behind", (0, 200))
@pytest.mark.parametrize("layers, wide", [(1, 1), (1, 4), (12, 4)])
def test_results_that_are_kept(tmp_path, layers, wide, behind):
    """They are never replaced by their like, although most requests are for a size that was just asked for."""
    path = tmp_path / "results.csv"
    path.write_text(workloads.results(layers, wide).text())
    _, allocated, _ = peaks(replay(path, "--conf", RULES))
    assert per_requested(replay(path, "--conf", MAPPED, "--behind", behind)) <= 1.04
    assert replay(path, "--conf", MAPPED, "--behind", behind, "--capacity", int(1.05 * allocated))["totals"]["ooms"] == 0


@pytest.mark.parametrize("layers, most, seed", [(16, 6, 1), (16, 6, 3), (32, 12, 2)])
def test_prompts_that_are_kept(tmp_path, layers, most, seed):
    """Sizes come again in all layers of a prompt, and never after that."""
    path = tmp_path / "prompts.csv"
    path.write_text(workloads.kept_prompts(layers, most << 30, seed=seed).text())
    _, allocated, _ = peaks(replay(path, "--conf", RULES))
    assert per_requested(replay(path, "--conf", MAPPED)) <= 1.055  # 1.0735 before
    assert replay(path, "--conf", MAPPED, "--capacity", int(1.05 * allocated))["totals"]["ooms"] == 0


@pytest.mark.parametrize("seed", [300, 301, 302, 303])
def test_keys_and_values_that_grow(tmp_path, seed):
    """All that is kept grows a row at a time, beside temporaries of new sizes."""
    path = tmp_path / "tokens.csv"
    path.write_text(caches.tokens(seed=seed).text())
    assert per_requested(replay(path, "--conf", MAPPED)) <= 1.05  # before at most 1.074


@pytest.mark.parametrize("behind", [0, 50])
@pytest.mark.parametrize("of", [{"width": 2 * MOST}, {"layers": 24}, {"shortest": 0.3, "steps": 14, "seed": 2}, {"shortest": 0.7, "steps": 14}], ids=str)
def test_what_the_first_step_leaves(tmp_path, of, behind):
    """An optimizer's states lie where its temporaries did, which had large handles: 1.05 to 1.146 before sizes that come again had smaller ones."""
    path = tmp_path / "checkpoints.csv"
    path.write_text(training.language_model(**of).text())
    assert per_requested(replay(path, "--conf", MAPPED, "--behind", behind)) <= 1.045


def test_any_language_model(tmp_path):
    """A hundred of 0.3 to 60 GiB: 1.0180 on average before, and 4 above 1.05."""
    path, kept, failed = tmp_path / "model.csv", [], 0
    for seed in range(100):
        path.write_text(training.any_language_model(seed).text())
        got = replay(path, "--conf", MAPPED)
        kept.append(per_requested(got))
        failed += replay(path, "--conf", MAPPED, "--capacity", int(1.05 * peaks(got)[1]))["totals"]["ooms"]
    assert sum(kept) / len(kept) <= 1.0165 and sum(k > 1.05 for k in kept) <= 3 and not failed  # now 1.0152 and 2


@pytest.mark.parametrize("mean, most", [(0.4, 1.085), (1, 1.095), (3, 1.105)])
def test_items_replaced_at_random(tmp_path, mean, most):
    """Of about a granule: far from 1.05, where the lowest hole that fits keeps 1.09, 1.157 and 1.133; PyTorch's rules 1.056, 1.123 and 1.159."""
    path = tmp_path / "items.csv"
    path.write_text(caches.items(int(mean * MOST)).text())
    assert per_requested(replay(path, "--conf", MAPPED)) <= most


@pytest.mark.parametrize("seed, limit", [(4, "capacity"), (8, "capacity"), (10, "memory_limit_mb")])
def test_random_sizes_below_a_cap(tmp_path, seed, limit):
    """All of them fit natively, to the granule: none fails."""
    path = tmp_path / "storm.csv"
    path.write_text(workloads.storm(20000, seed=seed).text())
    cap = ("--conf", MAPPED, "--capacity", 16 << 30) if limit == "capacity" else ("--conf", f"{MAPPED},memory_limit_mb:{16 << 10}")
    got = replay(path, *cap)
    assert got["totals"]["peak_reserved_bytes"] <= 1.01 * got["totals"]["peak_requested_bytes"]
    assert got["totals"]["ooms"] == 0 and got["devices"][0]["counters"]["native_since_request"] == 0


def test_outputs_beside_temporaries(tmp_path):
    """Here the best hole, whatever it leaves over, would keep 1.09: each is soon part of a large one again."""
    kept = []
    for seed in range(1, 9):
        path = tmp_path / f"{seed}.csv"
        path.write_text(caches.outputs(seed=seed).text())
        kept.append(per_requested(replay(path, "--conf", MAPPED)))
    assert sum(kept) / len(kept) <= 1.07


def test_corners_of_chunks_serve(tmp_path):
    """They share chunks, of which only corners are left in the end: without these 30 requests of forty storms fail, natively none."""
    path, failed = tmp_path / "storm.csv", 0
    for seed in range(1, 41):
        path.write_text(workloads.storm(8000, 256 << 20, seed, most=40 << 20).text())
        failed += replay(path, "--conf", MAPPED, "--capacity", 256 << 20)["totals"]["ooms"]
    assert failed <= 8


def test_that_large_blocks_are_the_driver_s_own_is_said(tmp_path):
    path = tmp_path / "corners.csv"
    path.write_text(workloads.corners().text())
    conf = f"{MAPPED},large_segment_size_mb:14"
    words = "large blocks are not mapped memory but the driver's own: a request had failed for which natively there was room."
    shown = command("replay", path, "--conf", conf, "--capacity", 56 << 20).stdout
    assert words in " ".join(shown.replace("|", " ").split()), shown
    assert "not mapped" not in command("replay", path, "--conf", conf).stdout


def test_what_fits_natively_neither_stays_packed(tmp_path):
    """At the very peak natively nothing fits, and rounding each block to 2 MiB would make it worse."""
    _, allocated, _ = peaks(replay(trace_of("resnet50"), "--conf", RULES))
    got = replay(trace_of("resnet50"), "--conf", MAPPED, "--capacity", allocated)
    assert 0 < got["totals"]["ooms"] <= 10 and got["driver"]["calls"]["alloc"]["count"] < 100


def test_without_addresses_for_its_tables_nothing_is_told_of_it(tmp_path):
    """As in a shell with `ulimit -v`: ordinary segments would have served, and their figures been told."""
    path = write(tmp_path / "x.csv", "a,0,4000000,0\n")
    for words in (("replay",), ("replay", "--conf", "expandable_segments:True", "--capacity", "8GiB"), ("tune",)):
        done = command(words[0], path, *words[1:], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)))
        assert (done.returncode, done.stdout) == (1, "") and "no memory for the tables of mapped memory" in done.stderr and "ulimit -v" in done.stderr
    done = command("replay", path, "--conf", "expandable_segments:False",
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)))
    assert done.returncode == 0


@pytest.mark.parametrize("conf, way", [("cache:on", "auto: True"), ("ipc:dedicated", "auto: False, because of the option ipc"), ("expandable_segments:True", "True"),
                                       ("expandable_segments:False,ipc:dedicated", "False"),
                                       ("expandable_segments:True,ipc:dedicated", "True: False, because of the option ipc")])
def test_a_replay_says_which_way_it_went(tmp_path, conf, way):
    """As a program's report does."""
    path = write(tmp_path / "x.csv", "a,0,4000000,0\n")
    done = command("replay", path, "--format", "json", "--conf", conf)
    got = json.loads(done.stdout)
    assert got["config"]["expandable_segments"]["value"] == way
    assert (got["driver"]["calls"]["chunk_create"]["count"] > 0) == way.endswith("True")
