"""A history as a Perfetto trace (protobuf): counters per device, waits for fences, segments, out of memory.

Field numbers are those of Perfetto's protos/perfetto/trace/: trace.proto, trace_packet.proto and track_event/.
"""

from cachalot_command.reading.history import CHANGES

TRUSTED_SEQUENCE = 1
INCREMENTAL_STATE_CLEARED = 1
TYPE_SLICE_BEGIN, TYPE_SLICE_END, TYPE_INSTANT, TYPE_COUNTER = 1, 2, 3, 4
UNIT_SIZE_BYTES = 3
COUNTERS, SERIES = ("allocated", "active", "reserved"), ("allocated", "reserved", "free")
PROCESS_TRACK = 1


def varint(value):
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(field, value):
    return varint(field << 3) + varint(value)


def message(field, data):
    data = data.encode("utf-8", "replace") if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def packet(body, flags=0):
    """A TracePacket in a Trace."""
    tail = integer(13, flags) if flags else b""
    return message(1, body + integer(10, TRUSTED_SEQUENCE) + tail)


def descriptor(track, name=None, parent=None, more=b""):
    """A TrackDescriptor."""
    body = integer(1, track) + (message(2, name) if name else b"") + (integer(5, parent) if parent else b"")
    return packet(message(60, body + more))


def event(time, kind, track, more=b""):
    """A TrackEvent at `time` in ns."""
    return packet(integer(8, time) + message(11, integer(9, kind) + integer(11, track) + more))


def note(name, value):
    """A DebugAnnotation with a number or a text."""
    return message(4, message(10, name) + (message(6, value) if isinstance(value, str) else integer(3, value)))
WAITS = {"fence_wait": "wait for a fence", "ask": "ask other processes for memory"}


class Writer:
    """Writes one device after the other; Perfetto sorts by time."""

    def __init__(self, source, file):
        self.source, self.file, self.threads = source, file, {}

    def process(self):
        described = message(3, integer(1, self.source.pid & 0x7fffffff) + message(6, self.source.program))
        # Without the flag some readers drop the sequence.
        self.file.write(packet(message(60, integer(1, PROCESS_TRACK) + described), INCREMENTAL_STATE_CLEARED))

    def thread_track(self, thread, base):
        """The track of a thread on a device, described when first used."""
        key = (thread, base)
        if key not in self.threads:
            self.threads[key] = base + 8 + len(self.threads)
            self.file.write(descriptor(self.threads[key], f"thread {thread}", PROCESS_TRACK))
        return self.threads[key]

    def device(self, history):
        base = 1000000 * (history.device + 1)
        counters = COUNTERS if history.knows_reserved() else COUNTERS[:2]
        for i, name in enumerate(counters):
            unit = message(8, integer(3, UNIT_SIZE_BYTES))
            self.file.write(descriptor(base + i, f"GPU {history.device} {name}", PROCESS_TRACK, unit))
        self.file.write(descriptor(base + 3, f"GPU {history.device} driver", PROCESS_TRACK))
        self.levels(history, base, len(counters))
        for one in history.events:
            if one.action in WAITS:
                self.wait(one, base)
            elif one.action in ("oom", "segment_alloc", "segment_free", "segment_map", "segment_unmap"):
                self.instant(one, base)

    def life(self, device, steps):
        """Counters over the whole life, which every report has; those of the events are of the last ones alone."""
        base = 1000000 * (device + 1) + 500000
        for i, name in enumerate(SERIES):
            values = [(step.ms, getattr(step, name)) for step in steps if getattr(step, name) is not None]
            if not values:
                continue
            unit = message(8, integer(3, UNIT_SIZE_BYTES))
            self.file.write(descriptor(base + i, f"GPU {device} {name}, whole life", PROCESS_TRACK, unit))
            for ms, value in values:
                self.file.write(event(ms * 1000000, TYPE_COUNTER, base + i, integer(30, value)))

    def levels(self, history, base, count):
        now = list(history.levels)
        begin = history.events[0].time if history.events else 0
        for i, value in enumerate(now[:count]):
            self.file.write(event(begin, TYPE_COUNTER, base + i, integer(30, value)))
        for one in history.events:
            for i, sign in enumerate(CHANGES[one.action]):
                if sign and i < count:
                    now[i] += sign * one.size
                    self.file.write(event(one.time, TYPE_COUNTER, base + i, integer(30, now[i])))

    def wait(self, one, base):
        track = self.thread_track(one.thread, base)
        begin = max(0, one.time - one.duration)
        self.file.write(event(begin, TYPE_SLICE_BEGIN, track, message(23, WAITS[one.action])))
        self.file.write(event(one.time, TYPE_SLICE_END, track))

    def instant(self, one, base):
        name = {"oom": "out of memory"}.get(one.action, one.action)
        site = self.source.sites[one.site] if one.site is not None else []
        notes = note("bytes", one.size) + (note("address", f"{one.address:#x}") if one.address else b"")
        notes += note("site", " < ".join(site)) if site else b""
        self.file.write(event(one.time, TYPE_INSTANT, base + 3, message(23, name) + notes))


def write(source, file):
    writer = Writer(source, file)
    writer.process()
    for history in source.histories:
        if history.events or not source.series:
            writer.device(history)
        if history.device in source.series:
            writer.life(history.device, source.series[history.device])
