"""Device memory over time, as a report or a live page has it: steps, each of which holds until the next one."""

import os
import struct
from typing import NamedTuple

from cachalot_command.reading.report import get

POINTS_MOST, NUMBER_MOST = 2047, (1 << 53) - 1
# As in stats/page/series.h: a series in a page, and one of its points.
SERIES_MOST, PAGE_POINTS, TICK_MS, GRAIN, UNKNOWN = 8, 2046, 10, 512, (1 << 32) - 1
HEAD, POINT = struct.Struct("@4Q"), struct.Struct("@4I")
SERIES_BYTES = HEAD.size + PAGE_POINTS * POINT.size


class Step(NamedTuple):
    """`ms` since the program began; bytes of which the most, or the least free, in its time. `free` None: not known."""

    ms: int
    allocated: int
    reserved: int
    free: int


def in_order(steps):
    """Without steps that are not later than the one before: of two, a process that moved them was killed meanwhile."""
    kept = []
    for step in steps:
        if not kept or step.ms > kept[-1].ms:
            kept.append(step)
    return kept


def is_step(row):
    return isinstance(row, list) and len(row) == 4 and all(
        type(value) is int and 0 <= value <= NUMBER_MOST for value in (*row[:3], 0 if row[3] is None else row[3]))


def series_of(report):
    """{device: [Step]} of a report. Damaged points are left out."""
    found = {}
    for one in report.list("series")[:SERIES_MOST]:
        device, rows = get(one, "device"), get(one, "points")
        if type(device) is int and isinstance(rows, list):
            found[device] = in_order(Step(*row) for row in rows[:POINTS_MOST] if is_step(row))
    return {device: steps for device, steps in found.items() if steps}


def series_at(file, place, last):
    """(row of the device, [Step]) of a series at that place of a page, its last steps; None if no device has it."""
    device, count, *_ = HEAD.unpack(os.pread(file, HEAD.size, place))
    first = max(0, min(count, PAGE_POINTS) - last)
    data = os.pread(file, (min(count, PAGE_POINTS) - first) * POINT.size, place + HEAD.size + first * POINT.size)
    if not device:
        return None
    return device - 1, in_order(Step(time * TICK_MS, allocated * GRAIN, reserved * GRAIN, None if free == UNKNOWN else free * GRAIN)
                                for time, allocated, reserved, free in POINT.iter_unpack(data))


def columns_of(steps, begin, end, count):
    """The time from `begin` to `end` [ms] in `count` equal parts: (most allocated, most reserved) of each."""
    columns, width = [[0, 0] for _ in range(count)], max(end - begin, 1) / count
    for step, after in zip(steps, [*(step.ms for step in steps[1:]), end]):
        first = max(int((step.ms - begin) / width), 0)
        last = min(int((after - begin - 1e-9) / width) if after > step.ms else first, count - 1)
        for column in columns[first:last + 1] if after >= begin else ():
            column[0], column[1] = max(column[0], step.allocated), max(column[1], step.reserved)
    return columns
