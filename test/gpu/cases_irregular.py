"""Programs of traced/ whose sizes hardly come again: the time of their steps in front of us, PyTorch's cache off, and with PyTorch's own
expandable segments."""

import json
import sys

from kit import HERE, Failed, Skip

EXPANDABLE = "expandable_segments:True"
MOST = 1.02
# Of those there are, the ones whose moves a replay prices highest.
NAMES = ("word_lstm_tbptt", "video_memory", "conformer_ctc_attention", "series_paths", "pair_fold", "unet_random_crops", "progressive_gan_gp",
         "raft_hd", "long_local_global", "padded_batcher")


def steps(kit, name, environment, counts=()):
    """What a run says of itself; it goes as far as `counts` say, and without for its own time."""
    environment = {**environment, "CACHALOT_TRACED_SECONDS": "4", "CACHALOT_TRACED_COUNTS": ",".join(map(str, counts))}
    run = kit.good([sys.executable, str(HERE / "traced" / "run.py"), name], environment)
    return json.loads(run.lines[-1]), run


def irregular(kit):
    """Ours, theirs, theirs, ours, after a run of theirs that says how many steps."""
    theirs = kit.native(PYTORCH_CUDA_ALLOC_CONF=EXPANDABLE, PYTORCH_ALLOC_CONF=EXPANDABLE)
    for name in kit.options.only or NAMES:
        try:
            counts = steps(kit, name, theirs)[0]["counts"]
            found = [steps(kit, name, way, counts) for way in (kit.front(), theirs, theirs, kit.front())]
        except (Skip, Failed) as reason:
            kit.check(f"{name}: step time", False, reason)
            continue
        ours, others = [found[0][0]["in_loops"], found[3][0]["in_loops"]], [found[1][0]["in_loops"], found[2][0]["in_loops"]]
        totals = found[3][1].exit.totals
        kit.check(f"{name}: steps of PyTorch's expandable segments", sum(ours) <= MOST * sum(others),
                  f"{sum(ours) / sum(others):.3f}: {ours[0]:.2f} and {ours[1]:.2f} s of {others[0]:.2f} and {others[1]:.2f}; reserved "
                  f"{totals['peak_reserved_bytes'] / totals['peak_requested_bytes']:.4f} of requested")
