"""The history of memory, event by event, from a report. It is checked, and has one form for all exports.

A free is always two events, as in PyTorch: `free_requested` by the program, and `free_completed` when the block can be used
again. Both have the same time unless the block waited for a fence.
"""

import os
import re
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import NamedTuple

from cachalot_command.common.tools import Failure, printable
from cachalot_command.reading.recorded import ACTIONS, KINDS, UNCACHED
from cachalot_command.reading.report import Report, get, number
from cachalot_command.reading.series import series_of
from cachalot_command.reading.symbols import is_ours, resolve

STATES = {"active": "active", "allocated": "active", "pending": "pending", "inactive": "inactive",
          "reusable": "inactive"}
# The change of (allocated, active, reserved) bytes by an event, in units of its size.
CHANGES = {"alloc": (1, 1, 0), "free": (-1, -1, 0), "free_requested": (-1, 0, 0), "free_completed": (0, -1, 0),
           "segment_alloc": (0, 0, 1), "segment_free": (0, 0, -1), "segment_map": (0, 0, 1), "segment_unmap": (0, 0, -1),
           "fence_wait": (0, 0, 0), "oom": (0, 0, 0), "ask": (0, 0, 0)}
LEVELS = ("allocated_bytes", "active_bytes", "reserved_bytes")
NUMBER_MOST = (1 << 53) - 1  # as in the schema
DEVICES_MOST = 1024
EPOCH = datetime.fromtimestamp(0, timezone.utc)
ADDRESS = re.compile("0x[0-9a-fA-F]{1,16}")


class Event(NamedTuple):
    """`time`: ns since the program began, or the number of the operation in a trace without times."""

    time: int
    action: str
    address: int
    size: int
    requested: int
    thread: int = 0
    site: int = None
    duration: int = 0


class Block(NamedTuple):
    address: int
    size: int
    requested: int
    state: str
    site: int = None


@dataclass
class Segment:
    address: int
    size: int
    pool: str
    blocks: list
    mapped: bool = None  # None: unknown


@dataclass
class History:
    """One device: `events`, `segments` at their end (None: unknown), and what was there before the first event."""

    device: int = 0
    name: str = ""
    events: list = field(default_factory=list)
    segments: list = None
    before: list = field(default_factory=list)
    levels: tuple = (0, 0, 0)  # allocated, active, reserved bytes before the first event
    tells_ooms: bool = True
    told: dict = None  # the report's object of the device

    def knows_reserved(self):
        """False for a trace that only says what the program asked for."""
        return self.told is not None or any(e.action.startswith("segment_") for e in self.events)


@dataclass
class Source:
    """What exports need. `report` is None for a trace."""

    path: str
    program: str
    report: object = None
    histories: list = field(default_factory=list)
    sites: list = field(default_factory=list)
    lost: int = 0
    has_time: bool = True
    pid: int = 0
    start: datetime = EPOCH  # time 0 of the events
    uncached: list = field(default_factory=list)  # (kind, Event) of memory that the cache does not serve: alloc, free
    held: list = field(default_factory=list)  # (kind, Block) of such memory at the end
    series: dict = field(default_factory=dict)  # {device: [Step]}


def whole(value, place, most=NUMBER_MOST):
    """A whole number of a report; anything else is refused."""
    if type(value) is not int or not 0 <= value <= most:
        raise Failure(3, f"{place} is {'missing' if value is None else 'no number, or out of range'}")
    return value


def address_of(value, place):
    if not isinstance(value, str) or not ADDRESS.fullmatch(value):
        raise Failure(3, f"{place} is no address")
    return int(value, 16)


def dictionaries(value, place):
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise Failure(3, f"{place} is no list of objects")
    return value


def site_of(value, sites):
    return value if type(value) is int and 0 <= value < len(sites) else None


def read_sites(report):
    """The frames of each call site by name, innermost first, without those of CUDA itself."""
    sites = get(resolve(report), "sites")
    frames = [get(site, "frames") for site in sites] if isinstance(sites, list) else []
    return [[printable(f)[:500] for f in own[:100] if not is_ours(f)] if isinstance(own, list) else [] for own in frames]


def read_block(block, place, sites):
    size = whole(block.get("size_bytes"), f"{place}.size_bytes")
    requested = block.get("requested_bytes")
    state = STATES.get(block.get("state")) if isinstance(block.get("state"), str) else None
    if state is None:
        raise Failure(3, f"{place}.state is none of active, pending and inactive")
    if state == "inactive":
        requested = 0
    elif requested is None:
        requested = size
    return Block(address_of(block.get("address"), f"{place}.address"), size,
                 min(size, whole(requested, f"{place}.requested_bytes")), state,
                 site_of(block.get("site"), sites))


def read_segments(device, place, sites):
    """The segments of the device, or None if the report lists none."""
    if device.get("segments") is None:
        return None
    segments = []
    for i, segment in enumerate(dictionaries(device["segments"], f"{place}.segments")):
        here = f"{place}.segments[{i}]"
        blocks = dictionaries(segment.get("blocks"), f"{here}.blocks")
        segments.append(Segment(
            address_of(segment.get("address"), f"{here}.address"),
            whole(segment.get("total_bytes"), f"{here}.total_bytes"),
            "small" if str(segment.get("pool")).startswith("small") else "large",
            [read_block(b, f"{here}.blocks[{j}]", sites) for j, b in enumerate(blocks)],
            segment["mapped"] if isinstance(segment.get("mapped"), bool) else None))
    return segments


def read_event(row, place, sites):
    """(device, Event) of one row. A free is still one event here."""
    action = row.get("action")
    if action not in ACTIONS:
        raise Failure(3, f"{place}.action is none of {', '.join(ACTIONS)}")
    size = whole(row.get("size_bytes", 0), f"{place}.size_bytes")
    requested = row.get("requested_bytes")
    requested = size if requested is None else whole(requested, f"{place}.requested_bytes")
    address = row.get("address")
    address = address_of(address, f"{place}.address") if address is not None else 0
    device = whole(row.get("device"), f"{place}.device", DEVICES_MOST)
    return device, Event(whole(row.get("time_ns"), f"{place}.time_ns"), action, address, size,
                         requested if action == "oom" else min(requested, size),
                         whole(row.get("thread") or 0, f"{place}.thread"), site_of(row.get("site"), sites),
                         whole(row.get("duration_ns") or 0, f"{place}.duration_ns"))


def read_uncached(row, place, sites):
    """(kind, Event) of one row of memory that the cache does not serve."""
    kind = row.get("kind")
    if kind not in KINDS:
        raise Failure(3, f"{place}.kind is none of {', '.join(KINDS[1:])}")
    size = whole(row.get("size_bytes"), f"{place}.size_bytes")
    return kind, Event(whole(row.get("time_ns"), f"{place}.time_ns"), row["action"].removeprefix("uncached_"),
                       address_of(row.get("address"), f"{place}.address"), size, size,
                       whole(row.get("thread") or 0, f"{place}.thread"), site_of(row.get("site"), sites))


def two_frees(events, pending):
    """The events with each free made two. `pending`: blocks that still wait for a fence at the end."""
    completed, waiting, out = set(), set(pending), []
    for event in reversed(events):
        action, address = event.action, event.address
        if action == "free":
            if address not in completed and address not in waiting:
                out.append(event._replace(action="free_completed"))
            completed.discard(address)
            waiting.discard(address)
            event = event._replace(action="free_requested")
        elif action == "free_completed":
            completed.add(address)
        elif action == "alloc":
            completed.discard(address)
            waiting.discard(address)
        out.append(event)
    out.reverse()
    return out


def live_before(events, segments):
    """Blocks that the program holds before the first event: those whose first event is a free, and those without an event."""
    seen, before = set(), []
    for event in events:
        if event.action in ("alloc", "free_requested", "free_completed") and event.address not in seen:
            seen.add(event.address)
            if event.action == "free_requested":
                before.append(Block(event.address, event.size, event.requested, "active", event.site))
    for segment in segments or ():
        before += [b for b in segment.blocks if b.state == "active" and b.address not in seen]
    return sorted(before)


def levels_before(events, end):
    """Allocated, active and reserved bytes before the first event, counted backwards from the `end`. No level falls below
    zero later."""
    now, least = [0, 0, 0], [0, 0, 0]
    for event in events:
        for i, sign in enumerate(CHANGES[event.action]):
            now[i] += sign * event.size
            least[i] = min(least[i], now[i])
    return tuple(max(e - n, -m) for e, n, m in zip(end, now, least))


def in_order(events):
    """Makes times that never fall: two threads may have noted their times in another order than their events."""
    last = 0
    for i, event in enumerate(events):
        if event.time < last:
            events[i] = event._replace(time=last)
        last = events[i].time
    return events


def program_of(report):
    """The command line of the program as a person would type it."""
    argv = report.get("process", "argv")
    if not isinstance(argv, list) or not argv:
        return report.text("process", "exe")
    return " ".join([os.path.basename(printable(argv[0])), *map(printable, argv[1:50])])


def start_of(report):
    text = report.get("time", "start")
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
    except (TypeError, ValueError):
        return EPOCH


def read_history(report, index, device, rows, sites):
    place = f"{printable(report.path)}: devices[{index}]"
    history = History(whole(device.get("device"), f"{place}.device", DEVICES_MOST),
                      printable(device.get("name") or "unknown device")[:200], told=device)
    history.segments = read_segments(device, place, sites)
    pending = [b.address for s in history.segments or () for b in s.blocks if b.state == "pending"]
    history.events = in_order(two_frees(rows.get(history.device, []), pending))
    history.before = live_before(history.events, history.segments)
    end = [int(max(0, number(device, "statistics", level, "all", "current") or 0)) for level in LEVELS]
    history.levels = levels_before(history.events, end)
    return history


def from_report(path, symbols=False):
    """The history in a report. Without CACHALOT_EVENTS it has no events."""
    report = Report(path, symbols)
    source = Source(path, program_of(report), report, sites=read_sites(report), start=start_of(report),
                    pid=int(report.number("process", "pid") or 0), series=series_of(report))
    rows = {}
    events = report.get("events")
    if events is not None:
        place = f"{printable(path)}: events"
        source.lost = whole(get(events, "lost") or 0, f"{place}.lost")
        for i, row in enumerate(dictionaries(get(events, "rows"), f"{place}.rows")):
            if row.get("action") in UNCACHED:
                source.uncached.append(read_uncached(row, f"{place}.rows[{i}]", source.sites))
                continue
            device, event = read_event(row, f"{place}.rows[{i}]", source.sites)
            rows.setdefault(device, []).append(event)
    source.histories = [read_history(report, i, device, rows, source.sites)
                        for i, device in enumerate(report.list("devices"))]
    return source
