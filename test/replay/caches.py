"""Traces of programs that keep many small things, made layer by layer or item by item (workloads.py)."""

import random

from workloads import GIB, MIB, Trace


def tokens(layers=32, places=8, steps=10, width=4096, seed=300):
    """A decoder that serves so many prompts at once, and keeps their keys and values, a block each a layer. Each token makes all of them anew,
    one row longer; a prompt that is done makes place for the next, whose length and temporaries are new."""
    trace, dice, kept = Trace(), random.Random(seed), []
    row = 2 * width
    for _ in range(steps):
        while len(kept) < places:
            length, stay = dice.randint(100, 3000), []
            state = trace.take(length * row)
            for _ in range(layers):
                hidden, query = trace.take(2 * length * row), trace.take(length * row)
                stay += [trace.take(length * row), trace.take(length * row)]
                trace.drop(hidden)
                wide = [trace.take(11 * length * row // 4) for _ in range(3)]
                trace.drop(*wide[:2], query)
                out = trace.take(length * row)
                trace.drop(state, wide[2])
                state = out
            trace.drop(state)
            kept.append([length, dice.randint(5, 60), stay])
        for prompt in kept:
            prompt[0] += 1
            prompt[1] -= 1
            for i, old in enumerate(prompt[2]):
                prompt[2][i] = trace.take(prompt[0] * row)
                trace.drop(old)
            if not prompt[1]:
                trace.drop(*prompt[2])
        kept = [prompt for prompt in kept if prompt[1]]
    return trace


def items(mean=MIB, most=2 * GIB, count=8000, seed=1):
    """A cache of items whose sizes differ by thirty times; a random one goes while they are more than `most` bytes."""
    trace, dice, kept, held = Trace(), random.Random(seed), [], 0
    for _ in range(count):
        size = int(mean * dice.uniform(0.3, 1.7) * dice.uniform(0.3, 1.7))
        kept.append((size, trace.take(size)))
        held += size
        while held > most:
            size, gone = kept.pop(dice.randrange(len(kept)))
            held -= size
            trace.drop(gone)
    return trace


def outputs(waves=6, count=250, seed=1):
    """Outputs of 0.3 to 1.9 MiB, each beside three temporaries of any size; at the end of a wave all but a tenth go, and large blocks come."""
    trace, dice = Trace(), random.Random(seed)
    for _ in range(waves):
        kept = []
        for _ in range(count):
            passing = [trace.take(dice.uniform(2, 30) * MIB) for _ in range(3)]
            kept.append(trace.take(dice.uniform(0.3, 1.9) * MIB))
            trace.drop(*passing)
        dice.shuffle(kept)
        trace.drop(*kept[count // 10:])
        trace.drop(*[trace.take(dice.uniform(8, 60) * MIB) for _ in range(6)])
    return trace
