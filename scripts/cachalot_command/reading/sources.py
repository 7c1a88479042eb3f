"""The history in a file, whether that is a report or a recorded trace."""

import bisect
import re
from codecs import BOM_UTF8
from datetime import timedelta

from cachalot_command.common.tools import Failure, open_regular, printable, show_progress
from cachalot_command.reading.history import (CHANGES, EPOCH, LEVELS, NUMBER_MOST, Block, Event, History, Segment, Source,
                                              from_report, in_order, read_event, read_uncached, two_frees)
from cachalot_command.reading.recorded import UNCACHED
from cachalot_command.reading.snapshot import DAMAGED, GROWTH
from cachalot_command.reading.traces import CHUNK, PICKLES, odd_header, open_source, recorded_events

OPERATIONS_MOST = 5000000
OFTEN = 100000  # operations between two updates of the progress
LINE_MOST = 4096
DIGITS_MOST = 19
STEPS = {"a": ("alloc",), "f": ("free_requested", "free_completed")}
CLOCK = re.compile(rb"([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])[.:]([0-9]{6})")  # RMM up to 24.12 has the colon
DAY = 86400000000  # microseconds
POINTER = re.compile(rb"\(nil\)|0x[0-9a-fA-F]{1,16}")
SMALL_SEGMENT = 2 << 20
TRACES = (b"op,", b"Thread,", b"a,", b"f,", b"o,", b"\x1f\x8b", b"CACHALOT-TRACE", *PICKLES)


def blocks_after(events, before=()):
    """The blocks that exist after the events."""
    blocks = {block.address: block for block in before}
    for event in events:
        if event.action == "alloc":
            blocks[event.address] = Block(event.address, event.size, event.requested, "active", event.site)
        elif event.action == "free_requested" and event.address in blocks:
            blocks[event.address] = blocks[event.address]._replace(state="pending")
        elif event.action == "free_completed":
            blocks.pop(event.address, None)
    return list(blocks.values())


def segments_after(events):
    """The segments that exist after the events, with their blocks."""
    segments = {}
    for event in events:
        if event.action == "segment_alloc":
            segments[event.address] = event.size
        elif event.action == "segment_free":
            segments.pop(event.address, None)
    left = sorted(blocks_after(events), reverse=True)
    return [fill(Segment(address, size, "small" if size <= SMALL_SEGMENT else "large", []), left)
            for address, size in sorted(segments.items())]


def fill(segment, left):
    """Puts blocks from the end of `left` into the segment, and reusable blocks between them."""
    at, end = segment.address, segment.address + segment.size
    while left and left[-1].address < at:
        left.pop()
    while left and left[-1].address + left[-1].size <= end:
        block = left.pop()
        if block.address > at:
            segment.blocks.append(Block(at, block.address - at, 0, "inactive"))
        segment.blocks.append(block)
        at = block.address + block.size
    if at < end:
        segment.blocks.append(Block(at, end - at, 0, "inactive"))
    return segment


def with_segments(source):
    """Adds segments to the report of a killed program, which could not list them. This needs all events."""
    for history in source.histories:
        if history.segments is None and history.events and not source.lost and lie_in_segments(history.events):
            history.segments = segments_after(history.events)
    return source


def lie_in_segments(events):
    """True if all blocks lie in segments. Blocks in mapped memory do not: events do not tell where that lies."""
    ends = {}
    for event in events:
        if event.action == "segment_alloc":
            ends[event.address] = max(event.address + event.size, ends.get(event.address, 0))
    begins = sorted(ends)
    return all(begins and event.address + event.size <= ends[begins[bisect.bisect(begins, event.address) - 1]]
               for event in events if event.action == "alloc")


class Sizes:
    """How often each size was requested, and how much of it is held."""

    def __init__(self):
        self.bins, self.live = {}, {}

    def add(self, event):
        if event.action == "alloc":
            row = self.bins.setdefault(max(0, event.requested - 1).bit_length(), [0, 0, 0])
            row[0] += 1
            self.count(row, event, 1)
            self.live[event.address] = row
        elif event.action == "free_requested" and event.address in self.live:
            self.count(self.live.pop(event.address), event, -1)

    @staticmethod
    def count(row, event, sign):
        row[1] += sign
        row[2] += sign * event.requested

    def rows(self):
        return [{"up_to_bytes": 1 << bits, "requests": row[0], "live": row[1], "live_bytes": row[2]}
                for bits, row in sorted(self.bins.items())]


def device_of(history):
    """What a report would say of the device, as far as a trace tells."""
    now, peak, at_peak, sizes = list(history.levels), [0, 0, 0], [0, 0, 0], Sizes()
    for event in history.events:
        sizes.add(event)
        now = [level + sign * event.size for level, sign in zip(now, CHANGES[event.action])]
        if event.action == "alloc" and now[2] > at_peak[2]:  # the same condition as in the library
            at_peak = now
        peak = list(map(max, peak, now))
    known = LEVELS if peak[2] else LEVELS[:1]
    requests = sum(e.action == "alloc" for e in history.events)
    return {"statistics": {"allocation": {"all": {"allocated": requests}},
                           **{level: {"all": {"peak": value}} for level, value in zip(known, peak)}},
            "counters": {"num_ooms": sum(e.action == "oom" for e in history.events) if history.tells_ooms else None},
            "at_peak_reserved": dict(zip(LEVELS, at_peak)), "size_histogram": sizes.rows()}


def trace_history(device, events):
    """The history of one device of a recorded trace."""
    segments = segments_after(events) if lie_in_segments(events) else None
    if segments is None and not any(event.action == "segment_map" for event in events):  # an old trace: reserved memory is unknown
        events = [event for event in events if event.action not in ("segment_alloc", "segment_free")]
    return History(device, "recorded trace", events, segments)


def from_recorded(path, header, rows):
    """The history in a trace that CACHALOT_TRACE recorded: the whole run, with segments."""
    name, devices, uncached, count = printable(path), {}, [], 0
    for count, row in enumerate(rows, 1):
        if count % OFTEN == 0:
            show_progress(f"{name}: {count // 1000}k events read")
        if count > OPERATIONS_MOST:
            raise Failure(3, f"{name} has more than {OPERATIONS_MOST} events; `cachalot replay` reads it")
        if row["action"] in UNCACHED:
            uncached.append(read_uncached(row, f"{name}: event {count}", ()))
            continue
        device, event = read_event(row, f"{name}: event {count}", ())
        devices.setdefault(device, []).append(event)
    if not count:
        raise Failure(3, f"{name} has no events in it")
    source = Source(path, header.exe, pid=header.pid, start=EPOCH + timedelta(microseconds=header.start_realtime_ns // 1000),
                    uncached=uncached)
    for device, events in sorted(devices.items()):
        source.histories.append(trace_history(device, in_order(two_frees(events, ()))))
    return source


def read_chunks(path):
    with open_regular(path) as file:
        while chunk := file.read(CHUNK):
            yield chunk


def trace_lines(source):
    """The text of a trace, line by line. The length of a line is bounded."""
    rest, count = b"", 1
    for chunk in source.chunks or read_chunks(source.path):
        lines = (rest + chunk).removeprefix(BOM_UTF8 if count == 1 else b"").split(b"\n")
        rest = lines.pop()
        count += len(lines)
        yield from lines
        if len(rest) > LINE_MOST:
            raise Failure(3, f"{source.name}: line {count}: longer than {LINE_MOST} bytes")
    yield rest


def whole(field):
    """A number as cachalot-replay reads it."""
    if not field.isdigit() or len(field) > DIGITS_MOST:
        raise ValueError
    return int(field)


RMM_ACTIONS = {b"allocate": "a", b"free": "f", b"allocate failure": "oom"}
SNAPSHOT_ACTIONS = {**RMM_ACTIONS, **{action.encode(): action for action in GROWTH}}


def operation(fields, actions):
    """(`a`, `f`, the action of another event or None, id, bytes) of a line; `actions` is None in our own form."""
    if actions:
        _, _, action, pointer, size, stream = fields
        kind, size = actions[action], whole(size)
        if not POINTER.fullmatch(pointer) or not stream:
            raise ValueError
        return kind if size or kind == "oom" else None, int(pointer, 16) if pointer != b"(nil)" else 0, size
    if fields[0] in (b"a", b"o"):
        _, key, size, stream = fields
        whole(stream)
        return {b"a": "a", b"o": "oom"}[fields[0]], whole(key), whole(size)
    return {b"f": "f"}[fields[0]], whole(fields[1]), 0


def is_line_of_rmm(fields):
    """True for an operation of RMM's log, so that a log without its header is recognised."""
    return len(fields) == 6 and fields[2] in RMM_ACTIONS


def microseconds(field):
    """The time of a line in RMM's log: of the day, or since 1970 in the 16 digits of a snapshot; None if it is none."""
    match = CLOCK.fullmatch(field)
    if match:
        hours, minutes, seconds, rest = map(int, match.groups())
        return ((hours * 60 + minutes) * 60 + seconds) * 1000000 + rest
    return int(field) if field.isdigit() and len(field) == 16 else None


class Clock:
    """The times of a log, in ns since its first line. A line whose time cannot be read has the time of the line before."""

    def __init__(self):
        self.first, self.last = None, 0

    def read(self, field):
        time = microseconds(field)
        if self.first is None:
            self.first = self.last = time
        elif time is not None:
            days = max(0, (self.last + DAY // 2 - time) // DAY)  # a clock that is far behind went past midnight
            self.last = max(self.last, time + (days * DAY if time < DAY else 0))
        return (self.last - self.first) * 1000


class TraceReader:
    """Makes events of the operations of a trace. Our own form has no addresses, so each block gets one of its own."""

    def __init__(self, name, actions, has_time):
        self.name, self.actions, self.clock = name, actions, Clock() if has_time else None
        self.events, self.live, self.next, self.count = [], {}, 1 << 40, 0

    def block(self, kind, key, size):
        """(address, size) of the block."""
        if not 0 <= size <= NUMBER_MOST or (kind == "a" and key in self.live):
            raise ValueError
        if kind == "f":
            return self.live.pop(key)
        if kind != "a" or self.actions:
            return key, size
        self.next += (size + 511) // 512 * 512
        return self.next - (size + 511) // 512 * 512, size

    def add(self, line, fields):
        try:
            kind, key, size = operation(fields, self.actions)
            block = self.block(kind, 0 if kind == "oom" else key, size)
        except (ValueError, KeyError, IndexError) as error:
            raise Failure(3, f"{self.name}: line {line}: this is no operation of a trace, frees what is not allocated, "
                             "or allocates what is") from error
        if kind == "a":
            self.live[key] = block
        time = self.clock.read(fields[1]) if self.clock else self.count
        thread = int(fields[0]) if self.actions and fields[0].isdigit() and len(fields[0]) < 16 else 0
        if kind and (block[1] or kind == "oom"):  # a request of 0 bytes gets no block
            self.events += [Event(time, action, *block, block[1], thread) for action in STEPS.get(kind, (kind,))]
        self.count += kind is not None


def from_text(path, device):
    """(history, note) of a text trace or a snapshot. Our own form has no times."""
    source = open_source(path, device, segments=True)
    reader = TraceReader(source.name, None, False)
    for i, line in enumerate(trace_lines(source), 1):
        if i % OFTEN == 0:
            show_progress(f"{source.name}: {i // 1000}k lines read")
        fields = line.rstrip(b"\r\n").split(b",")
        if i == 1 and (fields[0] == b"Thread" or is_line_of_rmm(fields)):
            reader.actions = RMM_ACTIONS if source.device is None else SNAPSHOT_ACTIONS
        if i == 1 and fields[0] in (b"op", b"Thread"):
            continue
        if fields != [b""]:
            if reader.actions and not reader.events and len(fields) > 1 and microseconds(fields[1]) is not None:
                reader.clock = reader.clock or Clock()
            reader.add(i, fields)
        if reader.count > OPERATIONS_MOST:
            raise Failure(3, f"{source.name} has more than {OPERATIONS_MOST} operations")
    if not reader.events:
        raise Failure(3, f"{source.name} has no operations in it")
    tells = reader.actions is not None or any(event.action == "oom" for event in reader.events)
    history = History(source.device or 0, "recorded trace", reader.events, tells_ooms=tells, levels=(0, 0, source.reserved_before))
    start = EPOCH + timedelta(microseconds=reader.clock.first if reader.clock else 0)
    return Source(path, source.name.rsplit("/", 1)[-1], has_time=reader.clock is not None, histories=[history], start=start), source.note


def missing_map(source):
    """The reason why a page made of a trace has no map."""
    why = "a recorded trace does not say where mapped memory (`expandable_segments`) lies" if source.pid else \
        "this trace says what was asked for, not where that lay"
    return f"No map of segments and blocks: {why}. `cachalot run --html FILE PROGRAM` makes a page with one."


def read_source(path, device=None, symbols=False):
    """(history, note or None) of a report or a trace. `device`: of a snapshot; `symbols`: as of a Report."""
    try:
        with open_regular(path) as file:
            begin = file.read(CHUNK).removeprefix(BOM_UTF8).lstrip()
        line = begin.partition(b"\n")[0]
        if not begin.startswith(TRACES) and not odd_header(line) and not is_line_of_rmm(line.split(b",")):
            return with_segments(from_report(path, symbols)), None
        recorded = recorded_events(path)
        packed = begin.startswith((b"\x1f\x8b", *PICKLES))
        return (from_recorded(path, *recorded), recorded[0].note()) if recorded else from_text(path, device if packed else None)
    except DAMAGED as error:
        raise Failure(3, f"{path}: {getattr(error, 'strerror', None) or error}") from error
