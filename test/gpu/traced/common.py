"""What the traced programs share. Sizes and lengths are drawn from one seed; each ends after some seconds of steps."""

import os
import random
import time

import torch

PROGS = {}
BUDGET = float(os.environ.get("CACHALOT_TRACED_SECONDS", "5"))
R = random.Random(0)
dev = "cuda"
begin = []  # when its first loop began; from there on its time runs
counts = []  # how far each loop came
LIKE = [int(count) for count in os.environ.get("CACHALOT_TRACED_COUNTS", "").split(",") if count]


def prog(f):
    PROGS[f.__name__] = f
    return f


def loop(n):
    """range(n), cut short when the program's time is up, or where that of an earlier run was (CACHALOT_TRACED_COUNTS)."""
    if not begin:
        torch.cuda.synchronize()
        begin.append(time.time())
    number = len(counts)
    counts.append(0)
    if LIKE:
        n = min(n, LIKE[number] if number < len(LIKE) else 0)
    for i in range(n):
        if not LIKE and time.time() > begin[0] + BUDGET:
            return
        counts[number] += 1
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
