"""Traces that CACHALOT_TRACE recorded (stats/output/trace.h): the header, and the events one by one."""

import os
import struct

from cachalot_command.common.tools import Failure, printable

MAGIC = b"CACHALOT-TRACE\n\0"
HEADER_BYTES, FORMAT = 4096, 1
HEADER = struct.Struct("=16s2I11Q64s72s512s512s128s")
EVENT = struct.Struct("=6Q")
ON, ENDED, STOPPED = 1, 2, 3
ACTIONS = ("alloc", "free", "free_completed", "segment_alloc", "segment_free", "fence_wait", "oom", "segment_map", "segment_unmap", "ask",
           "uncached_alloc", "uncached_free")
KINDS = ("device", "device", "stream_ordered", "pinned", "managed", "vmm", "array", "imported", "graph")  # 0: of the cache
NO_DEVICE = 0xfff
UNCACHED = ("uncached_alloc", "uncached_free")
SIZED = ("alloc", "free", "free_completed", "oom")


def text_of(data):
    return printable(data.split(b"\0", 1)[0].decode("utf-8", "replace"))


def event_at(offset):
    """The number of the event at an offset of the file; 1 within the header."""
    return max(offset - HEADER_BYTES, 0) // EVENT.size + 1


class Header:
    """The header of a recorded trace. `there`: the number of events in a file of `size` bytes. A trace that ended has all
    events it names."""

    def __init__(self, data, size, name):
        if len(data) < HEADER_BYTES:
            raise Failure(3, f"{name}: this trace is cut off in its header")
        (_, version, event_bytes, self.state, self.events, self.pid, self.start_ticks, _, self.start_realtime_ns,
         self.begin_ns, self.first_ticks, self.first_ns, last_ticks, last_ns,
         *texts) = HEADER.unpack_from(data)
        if version != FORMAT or event_bytes != EVENT.size:
            raise Failure(3, f"{name}: this trace is of another version of cachalot")
        self.there = (size - HEADER_BYTES) // EVENT.size
        self.session, self.hostname, self.exe, self.page, self.reason = map(text_of, texts)
        if self.state == ENDED and size != HEADER_BYTES + self.events * EVENT.size:
            raise Failure(3, f"{name}: event {min(self.there, self.events) + 1}: the file {'ends here' if self.there < self.events else 'goes on'}, "
                             f"and its header says {self.events} events: it is damaged, or was not copied whole")
        ticks = last_ticks - self.first_ticks
        self.ns_per_tick = (last_ns - self.first_ns) / ticks if ticks > 0 else 0.0

    def time_ns(self, ticks):
        """Time since service began."""
        return max(int((ticks - self.first_ticks) * self.ns_per_tick) + self.first_ns - self.begin_ns, 0)

    def note(self):
        """A note on a trace that is not whole, or None."""
        if self.there < self.events:
            return f"the trace is cut short: it has {self.there} of its {self.events} events"
        if self.state == STOPPED:
            return f"the recording ended early, after {self.events} events: {self.reason or 'its thread could not be made'}"
        if self.state != ON:
            return None
        more = "; `cachalot harvest` adds what had not been written any more" if os.path.exists(self.page) else ""
        return f"the trace is cut short: its program was killed, has become another (exec), or still runs; its whole events are read{more}"


def rows(header, chunks):
    """The events in the form of a report's `events.rows`, from the bytes behind the header."""
    rest, last, number = b"", 0, 0
    for chunk in chunks:
        data = rest + chunk
        whole = len(data) // EVENT.size * EVENT.size
        rest = data[whole:]
        for counted, ticks, address, size, requested, who in EVENT.iter_unpack(data[:whole]):
            number += 1
            if counted == 0:  # its thread was killed while it wrote
                continue
            if counted != number or who >> 60 >= len(ACTIONS):
                raise Failure(3, f"event {number} of the trace is damaged")
            last = max(last, header.time_ns(ticks))
            action, site = ACTIONS[who >> 60], who >> 32 & 0xffff
            row = {"time_ns": last, "action": action, "kind": "device", "device": who >> 48 & 0xfff, "address": f"{address:#x}",
                   "size_bytes": size, "requested_bytes": requested if action in SIZED else None,
                   "thread": who & 0xffffffff, "site": site - 1 if site else None}
            if action in ("fence_wait", "ask"):
                row["duration_ns"] = requested
            if action in UNCACHED:
                if requested >= len(KINDS):
                    raise Failure(3, f"event {number} of the trace is damaged")
                device = None if row["device"] == NO_DEVICE else row["device"]
                row.update(kind=KINDS[requested], requested_bytes=size, device=device)
            yield row
