"""Programs of traced/ whose sizes hardly come again: the time of their steps in front of us, PyTorch's cache off, and with PyTorch's own
expandable segments, as they are and with no more memory than we had reserved."""

import json
import sys

from kit import HERE, Failed, Skip

EXPANDABLE = "expandable_segments:True"
MOST = 1.02
ROUNDS = 3
# Of those there are, the ones whose moves a replay prices highest.
NAMES = ("word_lstm_tbptt", "video_memory", "conformer_ctc_attention", "series_paths", "pair_fold", "unet_random_crops", "progressive_gan_gp",
         "raft_hd", "long_local_global", "padded_batcher")


def steps(kit, name, environment, counts=()):
    """What a run says of itself; it goes as far as `counts` say, and without for its own time."""
    environment = {**environment, "CACHALOT_TRACED_SECONDS": "4", "CACHALOT_TRACED_COUNTS": ",".join(map(str, counts))}
    run = kit.good([sys.executable, str(HERE / "traced" / "run.py"), name], environment)
    return json.loads(run.lines[-1]), run


def with_as_much(kit, name, theirs, counts, reserved):
    """Their time with so many bytes, in s; or that they are out of memory."""
    try:
        return steps(kit, name, {**theirs, "CACHALOT_TRACED_MEMORY": str(reserved)}, counts)[0]["in_loops"]
    except Failed as reason:
        if "OutOfMemoryError" in str(reason):
            return None
        raise


def compared(ours, others):
    """Ours by theirs, each the shortest: runs of one differ by a tenth and more, and what disturbs them makes them longer."""
    def listed(runs):
        return " ".join("out of memory" if run is None else f"{run:.2f}" for run in runs)
    ratio = "" if None in others else f"{min(ours) / min(others):.3f}: "
    return f"{ratio}{listed(ours)} s of {listed(others)}"


def irregular(kit):
    """Ours, theirs, and theirs with as much memory, by turns, after a run of theirs that says how many steps."""
    theirs = kit.native(PYTORCH_CUDA_ALLOC_CONF=EXPANDABLE, PYTORCH_ALLOC_CONF=EXPANDABLE)
    for name in kit.options.only or NAMES:
        try:
            counts = steps(kit, name, theirs)[0]["counts"]
            ours, others, limited = [], [], []
            for _ in range(ROUNDS):
                own, run = steps(kit, name, kit.front(), counts)
                totals = run.exit.totals
                ours.append(own["in_loops"])
                others.append(steps(kit, name, theirs, counts)[0]["in_loops"])
                limited.append(with_as_much(kit, name, theirs, counts, totals["peak_reserved_bytes"]))
        except (Skip, Failed) as reason:
            kit.check(f"{name}: step time", False, reason)
            continue
        kit.check(f"{name}: steps of PyTorch's expandable segments", min(ours) <= MOST * min(others),
                  f"{compared(ours, others)}; reserved {totals['peak_reserved_bytes'] / totals['peak_requested_bytes']:.4f} of requested")
        kit.note(f"{name}: and with as much memory as ours", compared(ours, limited))
