"""`cachalot show --peak`: who held the memory of each device at its peak, one row for each line of code."""

import math

from cachalot_command.common.units import blocks_text, bytes_text, counted, size_text
from cachalot_command.reading.holders import by_line, holders, is_sample
from cachalot_command.reading.report import get, number

ROWS = 30


def row_text(row, sample):
    error = f" ± {bytes_text(row.error).strip():<9}" if sample else ""
    kind = "" if row.kind == "device" else f" [{row.kind}]"
    return f"  {bytes_text(row.bytes)}{error}  {blocks_text(row.blocks):>12}  {row.frames[0]}{kind}"


def device_lines(report, device, found):
    index = get(device, "device")
    rows = by_line([holder for holder in found if holder.device == index])
    peak = number(device, "statistics", "allocated_bytes", "all", "peak")
    if not rows:
        return [f"Device {index} at its peak of {size_text(peak)}: no call site is known."]
    error = round(math.sqrt(sum(row.error ** 2 for row in rows)))
    total = size_text(sum(row.bytes for row in rows)) + (f" ± {size_text(error)}" if error else "")
    lines = [f"Device {index} at its peak of {size_text(peak)}: {total} was held by {counted(len(rows), 'line')} of code"]
    lines += [row_text(row, is_sample(report)) for row in rows[:ROWS]]
    return lines + ([f"  and {counted(len(rows) - ROWS, 'more line')}"] if len(rows) > ROWS else [])


def peak_lines(report):
    """Who held memory at the peak of each device."""
    if report.get("sites") is None:
        return ["The program ran without call sites (CACHALOT_SITES=0)."]
    found = holders(report, "peak")
    lines = [line for device in report.list("devices") for line in device_lines(report, device, found)]
    if is_sample(report):
        mean = size_text(report.number("sites_mean_bytes"))
        lines.append(f"A sample: one byte of {mean} at least; ± is one standard error. CACHALOT_SITES=1 counts each request.")
    return lines or ["No device was used through the cache."]
