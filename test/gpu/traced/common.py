"""What the traced programs share. Sizes and lengths are drawn from one seed; each ends after some seconds of steps."""

import os
import random
import time

import torch

PROGS = {}
BUDGET = float(os.environ.get("CACHALOT_TRACED_SECONDS", "5"))
R = random.Random(0)
dev = "cuda"
ends = []  # when the program is to end: from its first loop on


def prog(f):
    PROGS[f.__name__] = f
    return f


def loop(n):
    """range(n), cut short when the program's time is up."""
    if not ends:
        ends.append(time.time() + BUDGET)
    for i in range(n):
        if time.time() > ends[0]:
            return
        yield i


def step(opt, loss):
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    return loss.item()


def ids(b, l, vocab):
    return torch.randint(5, vocab - 5, (b, l)).to(dev)


def ragged_mask(b, l, left=False):
    m = torch.zeros(b, l, dtype=torch.long)
    for j in range(b):
        k = R.randint(max(1, l // 3), l) if j else l
        if left:
            m[j, l - k:] = 1
        else:
            m[j, :k] = 1
    return m.to(dev)
