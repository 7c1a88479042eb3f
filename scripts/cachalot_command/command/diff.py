"""cachalot diff: compares two runs."""

import json
import math
import os

from cachalot_command.common.arguments import split
from cachalot_command.common.tools import Failure, printable, say
from cachalot_command.common.units import ratio_text, size_text, times_text
from cachalot_command.reading.processes import read_reports
from cachalot_command.reading.report import Report, get, number
from cachalot_command.reading.runs import NEWEST

HELP = """\
usage: cachalot diff OLD NEW [--all] [--json]

Compares the reports of two runs: memory, waste, calls of the driver, leaks,
options. OLD and NEW are files, or folders: then of the newest run in each, and
process by process (by rank and program).
  --all   figures that are the same in both, too
  --json  for programs

Exit code: 0 compared, whatever came out; 2 usage; 3 no or broken report.
To fail when a run got worse: `cachalot check NEW --baseline OLD`

example: cachalot diff before.json after.json
"""

# Of `totals`: (title, key, unit).
TOTALS = (
    ("Peak allocated", "peak_allocated_bytes", "bytes"), ("Peak reserved", "peak_reserved_bytes", "bytes"),
    ("Peak active", "peak_active_bytes", "bytes"), ("Peak requested", "peak_requested_bytes", "bytes"),
    ("Used of reserved", "peak_utilization_ratio", "ratio"), ("Requests", "requests", ""),
    ("From the cache", "hit_ratio", "ratio"), ("Driver allocations", "device_alloc", ""),
    ("Driver frees", "device_free", ""), ("Retries", "alloc_retries", ""), ("Out of memory", "ooms", ""),
    ("Fences", "fences", ""), ("Waits for fences", "fence_waits", ""), ("Time waited", "fence_wait_ns", "ns"),
    ("Never freed", "leaked_bytes", "bytes"), ("Blocks never freed", "leaked_blocks", ""),
    ("Double frees", "double_frees", ""), ("Warnings", "warnings", ""),
)
# Of each device when most was reserved.
FRAGMENTATION = (
    ("External fragmentation", "external_ratio", "ratio"), ("Internal fragmentation", "internal_ratio", "ratio"),
    ("Inactive split", "inactive_split_bytes", "bytes"), ("Largest allocatable", "largest_allocatable_bytes", "bytes"),
)
DEVICE = (("Peak allocated", "allocated_bytes"), ("Peak reserved", "reserved_bytes"))
WIDTH = 26
LEAKS_SHOWN = 10


class Figure:
    """One number in both runs; None if a report does not say."""

    def __init__(self, title, name, unit, old, new):
        self.title, self.name, self.unit, self.old, self.new = title, name, unit, old, new

    def is_same(self):
        return self.old == self.new

    def text(self, value):
        if value is None:
            return "-"
        if self.unit == "bytes":
            return size_text(value)
        if self.unit == "ratio":
            return ratio_text(value)
        return f"{value / 1e6:.1f} ms" if self.unit == "ns" else f"{value:,.0f}".replace(",", " ")

    def share(self):
        """The change as a share of the old value; None if that is no number."""
        share = (self.new - self.old) / self.old if self.old else float("inf")
        return share if math.isfinite(share) else None

    def change(self):
        """The change in the figure's unit, and as a share."""
        if self.old is None or self.new is None or self.is_same():
            return ""
        delta = self.new - self.old
        sign = "+" if delta > 0 else "-"
        if self.unit == "ratio":
            return f"{f'{sign}{100 * abs(delta):.1f} points':>13}"
        share = self.share()
        shown = "" if share is None else f"x{share + 1:.3g}" if share >= 9 else f"{sign}{100 * abs(share):.1f} %"
        return f"{sign + self.text(abs(delta)):>13}{shown:>11}"

    def line(self):
        return f"{self.title:<{WIDTH}} {self.text(self.old):>13} {self.text(self.new):>13} {self.change()}".rstrip()

    def as_object(self):
        known = self.old is not None and self.new is not None
        return {"name": self.name, "unit": self.unit, "old": self.old, "new": self.new,
                "change": self.new - self.old if known else None,
                "change_ratio": self.share() if known else None}


def devices_of(report):
    """{index: device}; the first, if several have one index."""
    devices = {}
    for device in report.list("devices"):
        index = number(device, "device")
        if index is not None:
            devices.setdefault(int(index), device)
    return devices


def device_figures(old, new):
    """Peaks of each device if there are several, and fragmentation at the peak."""
    old_devices, new_devices = devices_of(old), devices_of(new)
    indices = sorted({*old_devices, *new_devices})[:64]
    figures = []
    for index in indices:
        pair = old_devices.get(index), new_devices.get(index)
        of = f", GPU {index}" if len(indices) > 1 else ""
        place = f"devices.{index}."
        for title, key in DEVICE if of else ():
            figures.append(Figure(title + of, f"{place}{key}.peak", "bytes",
                                  *(number(d, "statistics", key, "all", "peak") for d in pair)))
        for title, key, unit in FRAGMENTATION:
            figures.append(Figure(title + of, f"{place}at_peak_reserved.{key}", unit,
                                  *(number(d, "at_peak_reserved", key) for d in pair)))
    return figures


def figures_of(old, new):
    totals = [Figure(title, f"totals.{key}", unit, old.number("totals", key), new.number("totals", key))
              for title, key, unit in TOTALS]
    return totals + device_figures(old, new)


def config_changes(old, new):
    """[(option, old, new)] of options that differ."""
    configs = [r.get("config") if isinstance(r.get("config"), dict) else {} for r in (old, new)]
    changes = []
    for key in sorted({*configs[0], *configs[1]}):
        values = [printable(get(c, key, "value"))[:80] if key in c else None for c in configs]
        if values[0] != values[1]:
            changes.append((printable(key)[:40], *values))
    return changes


def leak_groups(report):
    """{(device, size, is it a bin): (blocks, bytes)}. The group of all other sizes has no size."""
    groups = {}
    for leak in report.list("leaks"):
        each, most = number(leak, "requested_bytes"), number(leak, "up_to_bytes")
        size = (each, False) if each is not None else (most, True)
        key = (number(leak, "device"), *size)
        count, total = groups.get(key, (0, 0))
        groups[key] = (count + (number(leak, "count") or 0), total + (number(leak, "total_requested_bytes") or 0))
    return groups


def leak_changes(old, new):
    """[(what, old blocks, new blocks, change in bytes)], the largest change first."""
    groups = leak_groups(old), leak_groups(new)
    changes = []
    for key in {*groups[0], *groups[1]}:
        (was, was_bytes), (now, now_bytes) = (g.get(key, (0, 0)) for g in groups)
        if (was, was_bytes) != (now, now_bytes):
            device, size, is_bin = key
            what = "other sizes" if size is None else f"{'up to ' if is_bin else ''}{size:.0f} bytes"
            where = f" on GPU {device:.0f}" if device is not None else ""
            changes.append((what + where, was, now, now_bytes - was_bytes))
    return sorted(changes, key=lambda c: (-abs(c[3]), c[0]))


def name_of(report):
    rank = "" if report.get("process", "rank") is None else f"rank {report.text('process', 'rank')}, "
    return f"{report.text('process', 'exe')}, {rank}pid {report.text('process', 'pid')}, {report.text('time', 'start')}"


def notes_of(old, new):
    """Notes on what makes the two hard to compare."""
    notes = []
    if (old.text("process", "exe"), old.program()) != (new.text("process", "exe"), new.program()):
        notes.append("these are different programs")
    for which, report in (("old", old), ("new", new)):
        if report.text("coverage", "status") != "full":
            notes.append(f"coverage of the {which} run is {report.text('coverage', 'status')}")
        if report.text("exit", "reason") == "running":
            notes.append(f"the {which} run had not ended")
    return notes


def oom_summary(figures):
    ooms = next(f for f in figures if f.name == "totals.ooms")
    if not ooms.old and ooms.new:
        return f" It ran out of memory {times_text(ooms.new)}, the old one did not."
    return " It did not run out of memory any more." if ooms.old and ooms.new == 0 else ""


def summary(figures):
    """One line on what happened to the memory."""
    peak = next(f for f in figures if f.name == "totals.peak_reserved_bytes")
    if peak.old is None or peak.new is None:
        return "Peak reserved memory is not known of both."
    if peak.is_same():
        return f"Peak reserved memory is the same.{oom_summary(figures)}"
    word = "more" if peak.new > peak.old else "less"
    share = "" if peak.share() is None else f" ({100 * abs(peak.share()):.1f} %)"
    return f"The new run reserved {size_text(abs(peak.new - peak.old))}{share} {word} at its peak.{oom_summary(figures)}"


def table(old, new, figures, show_all):
    shown = [f for f in figures if (f.old, f.new) != (None, None) and (show_all or not f.is_same())]
    lines = [f"old: {name_of(old)}", f"new: {name_of(new)}", *(f"note: {note}" for note in notes_of(old, new)), "",
             f"{'':<{WIDTH}} {'old':>13} {'new':>13} {'change':>13}", *(f.line() for f in shown)]
    same = len(figures) - len(shown)
    if not show_all and same:
        lines.append(f"({same} figures are the same or unknown; --all shows them)")
    changes = config_changes(old, new)
    lines += ["", "Options:"] * bool(changes) + [
        f"  {key}: {was or 'not there'} -> {now or 'not there'}" for key, was, now in changes]
    leaks = leak_changes(old, new)
    lines += ["", "Never freed:"] * bool(leaks) + [
        f"  {what}: {was:.0f} -> {now:.0f} blocks ({'+' if delta >= 0 else '-'}{size_text(abs(delta))})"
        for what, was, now, delta in leaks[:LEAKS_SHOWN]]
    if len(leaks) > LEAKS_SHOWN:
        lines.append(f"  and {len(leaks) - LEAKS_SHOWN} more sizes")
    return [*lines, "", summary(figures)]


def as_object(old, new, figures):
    return {"schema_version": "1.0.0", "kind": "diff", "old": printable(old.path), "new": printable(new.path),
            "notes": notes_of(old, new), "figures": [f.as_object() for f in figures],
            "config": [{"option": k, "old": was, "new": now} for k, was, now in config_changes(old, new)],
            "leaks": [{"what": what, "old_blocks": was, "new_blocks": now, "change_bytes": delta}
                      for what, was, now, delta in leak_changes(old, new)]}


def reports_of(path):
    """The reports of a side: a file, or of a folder those of its newest run."""
    if not os.path.isdir(path):
        return [Report(path)]
    found = read_reports([path], NEWEST)
    if found.problems:
        raise Failure(3, found.problems[0])
    for note in found.notes:
        say(f"cachalot: {printable(path)}: {note}")
    return [process.report for process in sorted(found.processes, key=lambda process: process.report.text("time", "start"))]


def keyed(reports):
    """{(rank, program, how many of these were before): report}."""
    found = {}
    for report in reports:
        what = report.text("process", "rank"), report.program()
        number_of = sum(key[:2] == what for key in found)
        found[(*what, number_of)] = report
    return found


def pairs_of(old, new):
    """[(old, new)] of two sides, by rank and program. Reports without another are said."""
    if len(old) == len(new) == 1:
        return [(old[0], new[0])]
    sides = keyed(old), keyed(new)
    for which, side, other in (("old", *sides), ("new", *sides[::-1])):
        for key in side.keys() - other.keys():
            say(f"cachalot: only in the {which} run: {name_of(side[key])}")
    pairs = [(report, sides[1][key]) for key, report in sides[0].items() if key in sides[1]]
    if not pairs:
        raise Failure(3, "no two reports are of the same rank and program; name two files")
    return pairs


def main(arguments):
    """cachalot diff."""
    words, options = split("diff", arguments, ("--all", "--json"))
    if len(words) != 2:
        raise Failure(2, "give two reports, the old one first; see `cachalot diff --help`")
    pairs = pairs_of(*map(reports_of, words))
    compared = [(old, new, figures_of(old, new)) for old, new in pairs]
    if "--json" in options:
        found = [as_object(*each) for each in compared]
        whole = found[0] if len(found) == 1 else {"schema_version": "1.0.0", "kind": "diff", "pairs": found}
        print(json.dumps(whole, indent=2, allow_nan=False))
    else:
        print("\n\n".join("\n".join(table(*each, "--all" in options)) for each in compared))
    return 0
