"""A report as a table laid out like torch.cuda.memory_summary()."""

import os
import textwrap

from cachalot_command.common.tools import printable
from cachalot_command.common.units import blocks_text, bytes_text, count_text, ratio_text, size_text, time_text, times_text
from cachalot_command.reading.holders import is_sample
from cachalot_command.reading.kinds import past_the_cache as past_the_cache_of
from cachalot_command.reading.report import end_text, get, number
from cachalot_command.reading.series import series_of
from cachalot_command.writing.curve import chart, legend
from cachalot_command.writing.words import (coverage_advice, frames_of, hook_order, leak_text, native_words, oom_lines as event_lines,
                                            past_the_cache, sites_of, unnamed)

WIDTH = 77
SHOWN_OOMS, SHOWN_SITES, SHOWN_FAULTS = 3, 5, 10
METRICS = (
    ("Allocated memory", "allocated_bytes", True),
    ("Active memory", "active_bytes", True),
    ("Requested memory", "requested_bytes", True),
    ("GPU reserved memory", "reserved_bytes", True),
    ("Non-releasable memory", "inactive_split_bytes", True),
    ("Allocations", "allocation", False),
    ("Active allocs", "active", False),
    ("GPU reserved segments", "segment", False),
    ("Non-releasable allocs", "inactive_split", False),
)
POOLS = (("all", None), ("large_pool", "from large pool"), ("small_pool", "from small pool"))


def wrapped(text, first, rest):
    """The text in lines that fit, without breaking names and options."""
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False,
                         break_on_hyphens=False)


def rule(character="-"):
    return "|" + character * (WIDTH - 2) + "|"


def centred(text):
    return "|" + printable(text)[:WIDTH - 4].center(WIDTH - 2) + "|"


def pairs(*entries):
    """Lines with two `name: value` each."""
    lines = []
    half = (WIDTH - 3) // 2
    for i in range(0, len(entries), 2):
        cells = [printable(f"{name}: {value}")[:half - 1] for name, value in entries[i:i + 2]]
        cells += [""] * (2 - len(cells))
        lines.append(f"| {cells[0]:<{half - 1}}| {cells[1]:<{half - 1}}|")
    return lines


def metric_lines(device, title, key, is_bytes):
    text = bytes_text if is_bytes else count_text
    lines = []
    for pool, label in POOLS:
        values = [text(number(device, "statistics", key, pool, part))
                  for part in ("current", "peak", "allocated", "freed")]
        name = f"{title:<21}" if label is None else f"{label:>21}"
        lines.append(f"| {name} |" + "|".join(f" {v:>10} " for v in values) + "|")
    return lines + [rule()]


def native_lines(device):
    """The note that large blocks are ordinary segments, where mapped memory was given up."""
    return [f"| {line:<{WIDTH - 4}} |" for words in native_words(device) for line in textwrap.wrap(words, WIDTH - 4)]


def counters(device):
    def count(name):
        return count_text(number(device, "counters", name)).strip()

    requests = number(device, "statistics", "allocation", "all", "allocated") or 0
    hits = number(device, "counters", "num_hits")
    ratio = f" ({ratio_text(hits / requests)})" if requests and hits is not None else ""
    wait = number(device, "counters", "fence_wait_ns")
    return pairs(("Requests", count_text(requests).strip()),
                 ("Hits", count("num_hits") + ratio),
                 ("Driver allocations", count("num_device_alloc")),
                 ("Driver frees", count("num_device_free")),
                 ("Reusable at once", count("num_lane_frees")),
                 ("Behind fences", f"{count('num_fence_frees')}, after waits: {count('num_wait_frees')}"),
                 ("Lane marks", f"{count('num_lane_marks')}, joins: {count('num_lane_joins')}"),
                 ("Lane left", times_text(number(device, "counters", "num_lane_leaves"))),
                 ("Fences", count("num_fences")),
                 ("Waits for fences", f"{count('num_fence_waits')}, "
                                      f"{'-' if wait is None else format(wait / 1e6, '.1f')} ms"))


def fragmentation(device):
    """Three columns: now, at peak reserved, at peak allocated."""
    moments = ("fragmentation", "at_peak_reserved", "at_peak_allocated")
    rows = (("Utilization", "utilization_ratio", ratio_text),
            ("External", "external_ratio", ratio_text),
            ("Internal", "internal_ratio", ratio_text),
            ("Inactive split", "inactive_split_bytes", bytes_text),
            ("Largest allocatable", "largest_allocatable_bytes", bytes_text))
    lines = [f"| {'Fragmentation':<21} | {'now':>14} | {'peak reserved':>15} | "
             f"{'peak allocated':>14} |"]
    for title, key, text in rows:
        now, reserved, allocated = (text(number(device, m, key)).strip() for m in moments)
        lines.append(f"| {title:<21} | {now:>14} | {reserved:>15} | {allocated:>14} |")
    return lines


def device_table(device):
    name = printable(get(device, "name") or "unknown device")
    title = f"Cachalot memory summary, device ID {get(device, 'device')}"
    titles = [f"{title}: {name}"]
    if len(titles[0]) > WIDTH - 4:
        titles = [title, *textwrap.wrap(name, WIDTH - 4)]
    lines = [rule("="), *map(centred, titles), rule()]
    lines += pairs(("CUDA OOMs", count_text(number(device, "counters", "num_ooms")).strip()),
                   ("cudaMalloc retries",
                    count_text(number(device, "counters", "num_alloc_retries")).strip()))
    lines += [rule("="),
              "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |",
              rule()]
    for title, key, is_bytes in METRICS:
        lines += metric_lines(device, title, key, is_bytes)
    return lines + counters(device) + native_lines(device) + [rule()] + fragmentation(device) + [rule("=")]


def site_lines(report, index, indent):
    """The most telling frames of a call site."""
    return [f"{indent}{'at' if i == 0 else 'by'} {frame}" for i, frame in enumerate(frames_of(report, index))]


def holder_lines(report):
    """The call sites that hold most memory. A sample says it with `--peak` only."""
    if is_sample(report):
        return []
    sites = sites_of(report)
    order = sorted((i for i, site in enumerate(sites) if number(site, "live_bytes")),
                   key=lambda i: -number(sites[i], "live_bytes"))
    every = report.number("sites_every") or 1
    lines = ["Held by call sites" + (f" (one request of {every} was looked at):" if every > 1 else ":")] * bool(order)
    for i in order[:SHOWN_SITES]:
        lines.append(f"  {bytes_text(number(sites[i], 'live_bytes')).strip()} in {blocks_text(number(sites[i], 'live_blocks'))}")
        lines += site_lines(report, i, "    ")
    return lines


def leak_lines(report):
    total = report.number("totals", "leaked_bytes")
    if total is None:
        return []
    what = "Held when it was killed" if report.is_cut_off() else "Leaked"
    lines = [f"{what}: {bytes_text(total).strip()} in "
             f"{blocks_text(report.number('totals', 'leaked_blocks'))}"]
    past = [f"{kind} {size_text(leaked)}" for kind, _, leaked in past_the_cache_of(report) if leaked]
    lines += wrapped(f"  and past the cache: {', '.join(past)}", "", "  ") if past else []
    for leak in report.list("leaks")[:10]:
        lines.append(f"  {leak_text(leak)}")
        lines += site_lines(report, get(leak, "site"), "    ")
    more = len(report.list("leaks")) - 10
    return lines + ([f"  and {more} more sizes"] if more > 0 else [])


def oom_lines(report):
    """Each out-of-memory event as a sentence, with the options that would have helped."""
    events = report.list("oom_events")
    if not events:
        return []
    total = report.number("totals", "ooms") or len(events)
    shown = events[-SHOWN_OOMS:]
    lines = [f"Out of memory: {times_text(total)}"
             + (f", the last {len(shown)}:" if total > len(shown) else ":")]
    for event in shown:
        for i, text in enumerate(event_lines(event)):
            lines += wrapped(text, "    " if i else "  ", "    ")
        lines += site_lines(report, get(event, "site"), "    ")
    return lines


def ask_lines(report):
    """Who was asked for idle memory, and gave some."""
    asks = report.list("neighbour_asks")
    if not asks:
        return []
    total = (number(asks[-1], "number") or 0) + 1
    lines = [f"Asked other processes for memory: {times_text(total)}"
             + (f", the last {SHOWN_OOMS}:" if total > SHOWN_OOMS else ":")]
    for ask in asks[-SHOWN_OOMS:]:
        givers = get(ask, "from")
        names = [f"{printable(get(g, 'program') or 'a program')} (pid {number(g, 'pid') or 0:.0f}) gave {bytes_text(number(g, 'given_bytes')).strip()}"
                 for g in (givers if isinstance(givers, list) else [])[:4]]
        lines += wrapped(f"{bytes_text(number(ask, 'asked_bytes')).strip()} after {time_text(number(ask, 'time_ns'))}, waited "
                         f"{time_text(number(ask, 'waited_ns'))}: {', '.join(names) or 'none gave any'}", "  ", "    ")
    return lines


def kind_lines(report):
    """A row for each kind of memory, if there is any that the cache does not serve."""
    rows = [row for row in report.list("kinds") if number(row, "allocations")]
    if not any(get(row, "kind") != "device" for row in rows):
        return []
    columns = ("current_bytes", "peak_bytes", "total_bytes")
    lines = ["Memory by kind         Cur Usage   Peak Usage    Tot Alloc       Blocks"]
    for row in rows:
        sizes = "".join(f"{bytes_text(number(row, key)):>13}" for key in columns)
        lines.append(f"  {printable(get(row, 'kind'))[:17]:<17}{sizes}{count_text(number(row, 'blocks')):>13}")
    return lines


def head_lines(report):
    rank = "" if report.get("process", "rank") is None else f"rank {report.text('process', 'rank')}, "
    exe, program = report.text("process", "exe"), report.program()
    name = exe if program in (os.path.basename(exe), "-") else f"{program} ({exe})"
    lines = [f"{name}, {rank}pid {report.text('process', 'pid')} on "
             f"{report.text('process', 'hostname')}, started {report.text('time', 'start')}",
             f"Report: {report.text('kind')}; end: {end_text(report)}; "
             f"coverage: {report.text('coverage', 'status')}"]
    reasons = report.get("coverage", "reasons")
    for reason in reasons if isinstance(reasons, list) else []:
        lines.append(f"  {printable(reason)}")
    lines += hook_order(report)
    for advice in coverage_advice(report):
        lines += wrapped(advice, "  ", "  ")
    return lines + [line[0].upper() + line[1:] for line in past_the_cache([report])]


def fault_lines(report):
    """What the program did with memory that was not its own."""
    total, faults = report.number("totals", "faults") or 0, report.list("faults", "first")
    lines = [f"Faults of the program: {total:.0f}" + (f", the first {SHOWN_FAULTS}:" if total > SHOWN_FAULTS else ":")] * bool(total)
    for fault in faults[:SHOWN_FAULTS]:
        lines += wrapped(f"after {time_text(number(fault, 'time_ns'))}: {printable(get(fault, 'text'))}", "  ", "    ")
        for key, what in (("site", ""), ("block_site", "the block was allocated"), ("freed_site", "it was freed")):
            found = site_lines(report, get(fault, key), "      ")
            lines += [f"    {what}"] * bool(found and what) + found
    return lines


def warning_lines(report):
    warnings = report.list("warnings")
    return ["Warnings:"] * bool(warnings) + [
        f"  {printable(get(w, 'text'))} ({times_text(number(w, 'count'))})" for w in warnings]


def curve_lines(report, steps, index):
    """Memory of a device over time; nothing where it never changed."""
    uptime = report.number("time", "uptime_ns")
    end = max(steps[-1].ms + 1, (uptime or 0) / 1e6)
    free = [step.free for step in steps if step.free is not None]
    least = f"; at least {size_text(min(free))} of it were free" if free else ""
    if not any(step.reserved or step.allocated for step in steps):
        return []
    return [f"Device {index} over time: {legend()}{least}", *chart(steps, end, WIDTH)]


def lines_of(report):
    """The whole table of one report."""
    lines, series = head_lines(report), series_of(report)
    for device in report.list("devices"):
        lines += device_table(device)
        steps = series.get(get(device, "device"))
        lines += curve_lines(report, steps, get(device, "device")) if steps else []
    if not report.list("devices"):
        lines.append("No device was used through the cache.")
    note = [line for words in (unnamed(report) if not is_sample(report) or report.list("oom_events") else []) for line in wrapped(words, "", "")]
    return (lines + kind_lines(report) + oom_lines(report) + ask_lines(report) + holder_lines(report) + leak_lines(report) + note
            + fault_lines(report) + warning_lines(report))
