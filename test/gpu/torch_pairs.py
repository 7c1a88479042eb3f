"""PyTorch's own cache against none (that is, us in front), step by step in one process: shared machines drift too much
between two processes.

usage: torch_pairs.py NAME [ROUNDS] [STEPS] [TORCH_WORK]     NAME of torch_more.py, or of TORCH_WORK

Two models of one seed take the same steps in turn; PyTorch's cache is off in the steps of the second
(`torch.cuda.memory.caching_allocator_enable`). A third goes ahead, untimed: the first step of a new shape pays for choosing
kernels. Prints ms of both, and for each round the median over its steps of the ratio.
"""

import contextlib
import io
import pathlib
import statistics
import sys
import time

from point import say, torch_on_gpu

torch = torch_on_gpu()


def work_of(name, path):
    """What makes a step function: from torch_more.py, or from the part of torch_work.py that comes before its own loop."""
    if not path:
        import torch_more
        return torch_more.WORK[name]
    source, found, _ = pathlib.Path(path).read_text().partition("step,n=W[name]()")
    assert found, f"{path} is not as it was"
    place, arguments = {"__name__": "torch_work"}, sys.argv
    sys.argv = [path, name]
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(source, path, "exec"), place)  # it runs its loop on import
    sys.argv = arguments
    return lambda: place["W"][name]()[0]


def timed(step, cached):
    """ms of one step."""
    torch.cuda.memory.caching_allocator_enable(cached)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e3


def model(make, cached):
    torch.cuda.memory.caching_allocator_enable(cached)
    torch.manual_seed(0)
    return make()


def main(name, rounds=5, steps=12, path=None):
    make = work_of(name, path)
    ahead, ways = model(make, True), {cached: model(make, cached) for cached in (True, False)}
    for _ in range(4):
        timed(ahead, True)
        for cached, step in ways.items():
            timed(step, cached)
    taken, ratios = {True: [], False: []}, []
    for number in range(int(rounds) * int(steps)):
        timed(ahead, True)
        for cached in (True, False) if number % 2 else (False, True):
            taken[cached].append(timed(ways[cached], cached))
    pairs = [ours / own for ours, own in zip(taken[False], taken[True])]
    for begin in range(0, len(pairs), int(steps)):
        ratios.append(round(statistics.median(pairs[begin:begin + int(steps)]), 4))
    say(name=name, own_ms=round(statistics.median(taken[True]), 2), ours_ms=round(statistics.median(taken[False]), 2),
        ratio=round(statistics.median(pairs), 4), rounds=ratios)


if __name__ == "__main__":
    main(*sys.argv[1:])
