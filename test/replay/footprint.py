#!/usr/bin/env python3
"""footprint.py OUTPUT TOOL KEEP…: how footprint and cost trade against each other, as OUTPUT.md and OUTPUT.svg (needs matplotlib).
TOOL: cachalot-replay. KEEP: values of the number `keep` (allocator/base/policy.h). The most of a handle is tried for each."""

import json
import pathlib
import subprocess
import sys
import tempfile

import traces
import workloads

STEPS_MS = {"gpt": 30 * 115, "gptfix": 30 * 26, "resnet50": 30 * 100}
SIZES = (2, 4, 8, 12, 16, 24, 32)
GROWING = "2 to 16"  # the default: allocator/pool/arena_chunks.c
DEFAULT = (GROWING, "4")


def certified_and_made(folder):
    for name in STEPS_MS:
        path = folder / f"{name}.csv"
        path.write_bytes(traces.read(traces.CERTIFIED, name))
        yield name, path
    for name, make in workloads.ALL.items():
        path = folder / f"{name}.csv"
        path.write_text(make().text())
        yield name, path


def figures(tool, keep, path, size):
    conf = "expandable_segments:True" + (f",large_segment_size_mb:{size}" if size != GROWING else "")
    got = json.loads(subprocess.run([tool, "--policy", f"keep={keep}", "--conf", conf, path], capture_output=True, check=True).stdout)
    return got["reserved_per_requested"], got["driver"]["steady_cost_ns"] / 1e6


def programs(folder):
    for name in traces.names(traces.PROGRAMS):
        path = folder / f"{name}.csv"
        path.write_bytes(traces.read(traces.PROGRAMS, name))
        yield path


def sum_up(rows):
    """How many reserve more than the goal, the most, ms of all."""
    return f"{sum(r > 1.05 for r, _ in rows)}, {max(r for r, _ in rows):.3f}, {sum(ms for _, ms in rows):.0f}"


def table(results, names, small):
    yield "# Footprint against cost of mapped memory\n"
    yield "![reserved above requested against the cost of the driver's calls](footprint.svg)\n"
    yield f"""\
`test/replay/footprint.py` writes this table. The default is bold.

- *handles*: how large one is, at most (`large_segment_size_mb`); by default up to 16 MiB, as far as what it loses allows
- *KEEP*: addresses in use, in times the memory (the number `keep` of the policy)
- *a trace*: peak reserved / peak requested, and ms of driver calls in its last four fifths at the prices of `costs.c`; the bounds of the certified
  ones are 1.03, and {", ".join(f"{ms / 100:g} ms" for ms in STEPS_MS.values())}: 1 % of their steps
- *programs*: of the {len(small[DEFAULT])} of `traces/programs`, how many are above 1.05, the most, and ms of all
"""
    yield "| handles | KEEP | " + " | ".join(names) + " | programs |\n|---|---|---|" + "---|" * len(names)
    for (size, keep), row in results.items():
        mark, text = "**" if (size, keep) == DEFAULT else "", size if size == GROWING else f"to {size}"
        yield f"| {mark}{text} MiB{mark} | {keep} | " + " | ".join(f"{r:.4f}, {ms:.1f}" for r, ms in row.values()) \
            + f" | {sum_up(small[size, keep])} |"


def sums(rows):
    """ms of all, and how much more than what is requested they reserve in the mean, in %."""
    return sum(ms for _, ms in rows), 100 * (sum(r for r, _ in rows) / len(rows) - 1)


def picture(results, small, path):
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "cachalot"
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(1, 2, figsize=(12, 5))
    keeps = sorted({keep for _, keep in results}, key=int)
    made = {key: row.values() for key, row in results.items()}
    for colour, (which, rows) in enumerate(((f"{len(small[DEFAULT])} programs", small), ("recorded and made", made))):
        for keep, marker in zip(keeps, "x.+"):
            axes[0].plot(*zip(*(sums(rows[size, keep]) for size in SIZES)), marker + "-", color=f"C{colour}", label=f"{which}, KEEP {keep}")
            axes[0].plot(*sums(rows[GROWING, keep]), marker, color=f"C{colour}")
        axes[0].plot(*sums(rows[DEFAULT]), "*", markersize=14, color=f"C{colour}", label=f"{which}: {GROWING}, the default")
        for size in SIZES:
            axes[0].annotate(f"{size}", sums(rows[size, DEFAULT[1]]), textcoords="offset points", xytext=(4, 4))
    axes[0].set(xscale="log", yscale="log", ylim=(0.2, None), xlabel="ms of driver calls after warm-up, all of them",
                ylabel="reserved above requested, mean %", title="the most of a handle, in MiB")
    axes[0].yaxis.set_major_formatter("{x:g}")
    axes[0].legend(fontsize="x-small", loc="lower left")
    for name in next(iter(results.values())):
        rows = [(size, row[name][1]) for (size, k), row in results.items() if k == DEFAULT[1] and size != GROWING]
        axes[1].plot(*zip(*rows), "o-", label=name)
    axes[1].set(xscale="log", yscale="symlog", ylim=(0, None), xlabel="the most of a handle, MiB", ylabel="ms of driver calls after warm-up",
                title=f"KEEP {DEFAULT[1]}")
    axes[1].set_xticks([size for size in SIZES if size & size - 1 == 0], minor=False)
    axes[1].xaxis.set_major_formatter("{x:.0f}")
    axes[1].xaxis.set_minor_formatter("")
    axes[1].legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main(output, tool, *keeps):
    with tempfile.TemporaryDirectory() as folder:
        paths = dict(certified_and_made(pathlib.Path(folder)))
        both = [(size, keep) for keep in keeps for size in (GROWING, *SIZES)]
        results = {(size, keep): {name: figures(tool, keep, path, size) for name, path in paths.items()} for size, keep in both}
        others = list(programs(pathlib.Path(folder)))
        small = {(size, keep): [figures(tool, keep, path, size) for path in others] for size, keep in both}
    pathlib.Path(output + ".md").write_text("\n".join(table(results, paths, small)) + "\n")
    picture(results, small, output + ".svg")


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
