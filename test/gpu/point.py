"""The scripts' side of the runner: points where a program waits for a look, and skipping."""

import json
import os
import sys

SKIPPED = 77


def say(**values):
    """One result line, compared between runs."""
    print(json.dumps(values), flush=True)


def point(name, **figures):
    """Waits for a line on stdin; at its end (`</dev/null`) nobody waits."""
    print(json.dumps({"point": name, **figures}), flush=True)
    sys.stdin.readline()


def skip(reason):
    print(f"skip: {reason}", flush=True)
    sys.exit(SKIPPED)


def torch_on_gpu():
    """The torch module, or the end of this program."""
    try:
        import torch
    except ImportError as error:
        skip(f"no PyTorch: {error}")
    if not torch.cuda.is_available():
        skip("PyTorch sees no GPU")
    return torch


def torch_point(torch, name):
    """A point with PyTorch's own figures, if its own cache is on."""
    torch.cuda.synchronize()
    if "PYTORCH_NO_CUDA_MEMORY_CACHING" in os.environ:
        point(name)
        return
    stats = torch.cuda.memory_stats()

    def now(statistic, part="current"):
        return stats.get(f"{statistic}.all.{part}", 0)

    point(name, allocated=now("allocated_bytes"), reserved=now("reserved_bytes"),
          inactive_split=now("inactive_split_bytes"), peak=now("allocated_bytes", "peak"))
