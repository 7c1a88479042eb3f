"""Step times: PyTorch's own cache, none, and none with us in front, in rounds."""

import os
import pathlib
import re
import statistics
import sys

from cases_reuse import lane_figures
from cases_work import summary
from kit import MIB, Failed, Skip

MEDIAN = re.compile(r"median ([0-9.]+) ms")
RESERVED = re.compile(r"reserved_peak ([0-9.]+) MiB")
MORE = ("decode", "unet-train", "unet-sample", "lstm")
MOST = 1.02  # of PyTorch's own cache: step time, peak reserved


def step(kit, command, environment):
    """(median step in ms, MiB reserved at the peak, the run)."""
    run = kit.good(command, environment, timeout=200)
    said = "\n".join(run.lines)
    found, reserved = MEDIAN.search(said), RESERVED.search(said)
    if not found:
        raise Failed(f"no median in: {said[-200:]}")
    mib = run.exit.totals["peak_reserved_bytes"] / MIB if run.exit else \
        float(reserved.group(1)) if reserved else 0.0
    return float(found.group(1)), mib, run


def command_of(kit, name):
    if name in MORE:
        return kit.script("torch_more.py", name)
    path = kit.options.torch_work and os.path.abspath(kit.options.torch_work)
    if not path or not pathlib.Path(path).is_file():
        raise Skip(f"{name}: no torch_work.py: give --torch-work or CACHALOT_TORCH_WORK")
    return [sys.executable, path, name]


def with_own_cache(kit):
    """The environment of PyTorch with its own cache, as --own-conf has it set."""
    conf = kit.options.own_conf
    return kit.native(**({"PYTORCH_CUDA_ALLOC_CONF": conf, "PYTORCH_ALLOC_CONF": conf} if conf else {}))


def in_rounds(kit, name, modes):
    """Way → [(ms, MiB, run)], a row for each round; every other round backwards."""
    command = command_of(kit, name)
    ways = {"own cache": with_own_cache(kit),
            **{mode: kit.front(conf=f"free_mode:{mode}") for mode in modes}}
    rows = {way: [] for way in ways}
    for number in range(kit.options.repeat):
        for way in list(ways)[::-1 if number % 2 else 1]:
            rows[way].append(step(kit, command, ways[way]))
    rows["no cache"] = [step(kit, command, kit.no_cache())]
    return rows


def compare(kit, name, mode, rows):
    """One mode against PyTorch's own cache, round by round."""
    own, ours = rows["own cache"], rows[mode]
    ratios = [a[0] / b[0] for a, b in zip(ours, own)]
    reserved = [a[1] / b[1] for a, b in zip(ours, own) if b[1]]
    ratio, run = statistics.median(ratios), ours[-1][2]
    said = f"{ratio:.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
    memory = statistics.median(reserved) if reserved else 0.0
    more = f"{memory:.3f} ({ours[-1][1]:.0f} MiB of {own[-1][1]:.0f})"
    if mode == "async":
        kit.check(f"{name}: {mode}: step time of PyTorch's own cache", ratio <= MOST, said)
        kit.check(f"{name}: {mode}: peak reserved of PyTorch's own", memory <= MOST, more)
    else:
        kit.note(f"{name}: {mode}: step time, peak reserved of PyTorch's", f"{said}, {more}")
    kit.note(f"{name}: {mode}", summary(run)[2:] + " " + lane_figures(run.exit))


def timing(kit):
    """Each workload's step in rounds; medians and the ratios of pairs."""
    modes = [mode for mode in kit.options.modes if mode != "strict"]
    for name in kit.options.work:
        try:
            rows = in_rounds(kit, name, modes)
        except (Skip, Failed) as reason:
            kit.check(name, False, reason)
            continue
        for way, found in rows.items():
            kit.note(f"{name}: {way}", f"{statistics.median(row[0] for row in found):.2f} ms of "
                     + " ".join(f"{row[0]:.2f}" for row in found) + f"; {found[-1][1]:.0f} MiB")
        for mode in modes:
            compare(kit, name, mode, rows)


def reserved(kit):
    """Peak reserved of each workload, PyTorch's own cache and ours, many at once: times mean nothing here."""
    def one(name):
        try:
            command = command_of(kit, name)
            own, ours = kit.together(lambda: step(kit, command, kit.native()), lambda: step(kit, command, kit.front()))
        except (Skip, Failed) as reason:
            kit.check(f"{name}: reserved", False, reason)
            return
        way = ours[2].exit.report["config"]["expandable_segments"]["value"]
        kit.check(f"{name}: peak reserved of PyTorch's own cache", ours[1] <= MOST * own[1],
                  f"{ours[1] / own[1]:.3f} ({ours[1]:.0f} MiB of {own[1]:.0f}; {way}); {summary(ours[2])[2:]}")

    kit.together(*(lambda n=name: one(n) for name in kit.options.work))


def pairs(kit):
    """Steps with PyTorch's own cache and with us, in turn in one process: ratio of each pair."""
    for name in kit.options.work:
        more = []
        try:
            if name not in MORE:
                more = [command_of(kit, name)[1]]
            run = kit.good(kit.script("torch_pairs.py", name, max(5, kit.options.repeat), kit.options.steps, *more),
                           kit.front(with_own_cache(kit)), timeout=200)
        except (Skip, Failed) as reason:
            kit.check(f"{name}: pairs", False, reason)
            continue
        (said,) = run.results()
        own = "PyTorch's own cache" + (f" with {kit.options.own_conf}" if kit.options.own_conf else "")
        kit.check(f"{name}: step time of {own}, {len(said['rounds'])} rounds of {kit.options.steps} pairs",
                  said["ratio"] <= MOST,
                  f"{said['ratio']:.3f} ({min(said['rounds']):.3f} to {max(said['rounds']):.3f}; {said['ours_ms']:.2f} ms, "
                  f"{said['own_ms']:.2f} ms); {summary(run)[2:]} {lane_figures(run.exit)}")
