#!/usr/bin/env python3
"""How the cost of a hit grows: with live blocks, with threads, with different sizes. Writes growth.md and, where
matplotlib is, growth.svg beside this script (or into --into):

    CACHALOT_BUILD=build test/bench/growth.py [--most-live 10000000] [--rounds 3]

On the simulated device; medians, each with a baseline of the same rounds (libc's malloc and free of 64 B, at the same
random places; for threads as many that count alone, for as long a pair)."""

import argparse
import os
import pathlib
import platform
import statistics

from kit import BUILD, HERE, environment, run

PROGRAM = BUILD / "test/bench/bench_shared"
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
THREADS = (1, 2, 4, 8, 16, 32, 64)


def bench(library, *numbers):
    return run([PROGRAM, *numbers], environment(library), timeout=900)


def middle(found, what):
    return statistics.median(one[what] for one in found)


def pairs_of(library, live, sizes, rounds):
    """(live or sizes, pairs a second in millions, ns, ratio to the baseline)."""
    found = bench(library, "grow", live, sizes, rounds, 200_000)
    ns = middle(found, "ns")
    return 1000 / ns, ns, statistics.median(one["ns"] / one["base"] for one in found)


def threads_of(library, threads, rounds):
    found = bench(library, "threads", threads, rounds, 100)
    rate = middle(found, "rate") / 1e6
    return rate, 1000 / rate, statistics.median(one["rate"] / one["base_rate"] for one in found)


def table(title, head, rows):
    lines = [f"## {title}", "", f"| {head} | million pairs a second | ns | to the baseline |", "|---|---|---|---|"]
    return "\n".join(lines + [f"| {x:,} | {rate:.2f} | {ns:.1f} | {ratio:.2f} |" for x, rate, ns, ratio in rows])


def draw(path, parts):
    import matplotlib  # a picture is made only where it is
    matplotlib.use("svg")
    from matplotlib import pyplot
    pyplot.rcParams.update({"svg.hashsalt": "cachalot", "svg.fonttype": "none"})  # the same picture from the same figures
    figure, plots = pyplot.subplots(1, len(parts), figsize=(4.2 * len(parts), 3.4), layout="constrained")
    for plot, (title, head, rows) in zip(plots, parts):
        plot.plot([row[0] for row in rows], [row[1] for row in rows], marker="o", color="#1f5a8c")
        plot.set(title=title, xlabel=head, xscale="log", ylabel="million pairs a second")
        plot.set_ylim(bottom=0)
        plot.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=BUILD / "libcachalot.so", help="the library to measure")
    parser.add_argument("--most-live", type=int, default=10_000_000, help="largest number of live blocks (10000000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each figure (3)")
    parser.add_argument("--into", type=pathlib.Path, default=HERE, help="folder for growth.md and growth.svg")
    options = parser.parse_args()
    live = [10 ** n for n in range(2, 8) if 10 ** n <= options.most_live]
    parts = [
        ("Live blocks of 512 B, replaced at random", "live blocks",
         [(n, *pairs_of(options.library, n, 1, options.rounds)) for n in live]),
        ("Threads, each with pairs of 4 KiB", "threads",
         [(n, *threads_of(options.library, n, options.rounds)) for n in THREADS]),
        ("Different sizes, 10 000 live blocks", "sizes",
         [(n, *pairs_of(options.library, 10_000, n, options.rounds)) for n in SIZES]),
    ]
    text = "\n\n".join([
        "# How the cost of a hit grows",
        f"Made by `test/bench/growth.py` on the simulated device, {os.cpu_count()} processors ({platform.machine()}), "
        f"medians of {options.rounds} rounds. Pairs of cudaMalloc and cudaFree through a shared cudart.\n"
        "To the baseline: of live blocks and sizes, how many times a pair of libc's malloc of 64 B in the same rounds; of\n"
        "threads, the share of what as many threads reach that share nothing (as the machine was busy, the ratios count).",
        *(table(*part) for part in parts), "![](growth.svg)"])
    (options.into / "growth.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    try:
        draw(options.into / "growth.svg", parts)
    except ImportError:
        print("no matplotlib (Debian: python3-matplotlib): no picture")


if __name__ == "__main__":
    main()
