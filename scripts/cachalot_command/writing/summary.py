"""The table that `cachalot run --summary` prints when the program has ended."""

import os

from cachalot_command.common.tools import printable, say
from cachalot_command.common.units import bytes_text, counted
from cachalot_command.reading.report import end_text, get, last_of_each, signal_text
from cachalot_command.writing.words import doubts, hook_order, oom_lines, served

RANK_MOST = 20
ROW = "{}{:>9}  {:<20}  {:>11}  {:>11}  {:>6}  {:>10}  {}"


def doubts_of(reports):
    """The doubts about each process."""
    return dict.fromkeys(f"{report.program()}, pid {report.text('process', 'pid')}: {doubt}"
                         for report in last_of_each(reports) for doubt in doubts(report))


def remarks(report):
    """Remarks on a process beside its figures."""
    yield from doubts(report)
    yield from served(report)
    if signal_text(report):
        yield f"{end_text(report)}; what it held then counts as leaked"
    yield from hook_order(report)
    events = report.list("oom_events")
    if events:
        yield f"out of memory: {'. '.join(oom_lines(events[-1]))}"
    faults = report.number("totals", "faults")
    if faults:
        first = report.list("faults", "first")[:1]
        yield ": ".join([f"{counted(faults, 'fault')} of the program", *(printable(get(fault, "text")) for fault in first)])
    for warning in report.list("warnings"):
        if any(word in str(warning.get("text")) for word in ("trace", "cache of its own")):
            yield printable(warning["text"])


def rank_width(reports):
    """The width of the longest rank, since a shortened rank would be another one. 0: no ranks."""
    ranks = [report.text("process", "rank") for report in reports if report.get("process", "rank") is not None]
    return min(max([6, *map(len, ranks)]), RANK_MOST) if ranks else 0


def rank_column(value, width):
    return f"{printable(value)[:width]:>{width}}  " if width else ""


def row(report, width):
    ratio = report.number("totals", "hit_ratio")
    return ROW.format(
        rank_column(report.text("process", "rank"), width),
        report.text("process", "pid"),
        report.program()[:20],
        bytes_text(report.number("totals", "peak_allocated_bytes")),
        bytes_text(report.number("totals", "peak_reserved_bytes")),
        f"{100 * ratio:.1f}%" if ratio is not None else "-",
        bytes_text(report.number("totals", "leaked_bytes")),
        printable(os.path.relpath(report.path)))


def by_rank(report):
    return report.number("process", "rank") is None, report.number("process", "rank") or 0


def summary_lines(reports):
    """A line for each report, in the order of ranks, below one of titles."""
    width = rank_width(reports)
    yield ROW.format(rank_column("rank", width), "pid", "program", "peak alloc", "peak reserv", "hits", "leaked", "report")
    for report in sorted(reports, key=by_rank):
        yield row(report, width)


def print_summary(reports):
    """Prints a line for each process of the run, of its last report."""
    if not reports:
        return
    reports = last_of_each(reports)
    for line in summary_lines(reports):
        say(line)
    for report in reports:
        for remark in remarks(report):
            say(f"cachalot: process {report.text('process', 'pid')}: {remark}")
