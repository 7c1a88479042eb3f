#!/usr/bin/env python3
"""figures.py TOOL [--judge]: a table of what mapped memory keeps of each trace, with the cachalot-replay TOOL.

Without --judge it prints the open traces, to choose rules and numbers by. With --judge it replays the traces that are set aside, too, and
writes figures.md: once, when a change is done.
"""

import pathlib
import statistics
import sys

import made
import measure
import traces

RECORDED = (traces.PROGRAMS, traces.GROWING)
COLUMNS = ("trace", "keeps", *(f"{behind} behind" for behind in measure.BEHIND), "PyTorch's rules", "ms, warm", "ms, all", "fail", "natively", "PyTorch's rules")
INTRODUCTION = f"""\
# What mapped memory keeps of each trace

`test/replay/figures.py build/cachalot-replay --judge` writes this file. The tests hold the bounds of `promises.py`, not these figures.

- *keeps*: peak reserved / peak requested, where the device does all work at once
- *behind*: the same where the device is so many operations behind the program
- *PyTorch's rules*: the same with `{measure.RULES}`
- *ms*: driver calls at the prices of `costs.c`; *warm*: in the last four fifths of the trace
- *fail*: requests that fail on a device of {measure.ENOUGH} times the peak allocated, in mapped memory, natively and by PyTorch's rules
"""


def row(name, figures):
    ratios = (figures.keeps, *figures.late.values(), figures.by_rules)
    return (name, *(f"{ratio:.4f}" for ratio in ratios), f"{figures.steady_ms:.1f}", f"{figures.ms:.1f}", *map(str, figures.failed.values()))


def sum_up(name, rows):
    """Median / most of the ratios, and sums."""
    ratios = list(zip(*((f.keeps, *f.late.values(), f.by_rules) for f in rows)))
    sums = [sum(f.steady_ms for f in rows), sum(f.ms for f in rows)]
    failed = (sum(f.failed[conf] for f in rows) for conf in (measure.MAPPED, measure.NATIVE, measure.RULES))
    return (name, *(f"{statistics.median(r):.4f} / {max(r):.4f}" for r in ratios), *(f"{ms:.0f}" for ms in sums), *map(str, failed))


def table(rows):
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (COLUMNS, ("---",) * len(COLUMNS), *rows)) + "\n"


def section(title, found):
    return f"## {title}\n\n" + table(row(name, figures) for name, figures in found.items())


def recorded(tool, kind, are_set_aside):
    return {name: measure.figures(tool, traces.read(kind, name)) for name in traces.names(kind) if traces.is_set_aside(name) is are_set_aside}


def document(tool, judges):
    certified = {name: measure.figures(tool, traces.read(traces.CERTIFIED, name)) for name in traces.names(traces.CERTIFIED)}
    found = {kind: recorded(tool, kind, False) for kind in RECORDED}
    made_up = {name: measure.figures(tool, make().text()) for name, make in made.ALL.items()}
    models = [measure.figures(tool, model.text()) for model in made.language_models()]
    rows = [sum_up(f"{kind} ({len(some)})", list(some.values())) for kind, some in found.items()]
    if judges:
        for kind in RECORDED:
            some = recorded(tool, kind, True)
            rows.append(sum_up(f"{kind}, set aside ({len(some)})", list(some.values())))
    rows += [sum_up(f"made ({len(made_up)})", list(made_up.values())), sum_up(f"language models ({len(models)})", models)]
    return "\n".join((INTRODUCTION, "## Together: median / most, sums\n\n" + table(rows), section("Certified", certified),
                      section("Recorded programs that are not set aside", found[traces.PROGRAMS]),
                      section("Programs that keep more than others", found[traces.GROWING]), section("Made programs (`made.py`)", made_up)))


def main(tool, *options):
    text = document(tool, options == ("--judge",))
    if options:
        pathlib.Path(__file__).with_suffix(".md").write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    if sys.argv[2:] not in ([], ["--judge"]) or len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
