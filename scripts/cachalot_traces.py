"""Recorded traces in any of the forms that are read: what they are, and as text for cachalot-replay.

CSV (ours and RMM's) and what CACHALOT_TRACE recorded go to it as they are, unpacked if need be. A memory snapshot of PyTorch
is a pickle: read without ever making an object or calling a function, and told as our CSV.
"""

import contextlib
import csv
import gzip
import itertools
import os
import pickle
import resource
import sys
import zlib
from dataclasses import dataclass

import cachalot_recorded
from cachalot_tools import Failure, open_regular, printable, say

CHUNK = 1 << 20
MEMORY_LEAST, MEMORY_PER_BYTE = 1 << 28, 64  # of a pickle; PyTorch's snapshots take up to 12
ADDRESS_MOST, SIZE_MOST = 1 << 64, 1 << 63
PICKLES = (b"\x80", b"(", b"}")  # how one begins: of protocol 2 and later, 0, and 1
DAMAGED = (OSError, EOFError, zlib.error)
# What an unpickler may run into when its text is not what it should be.
UNREADABLE = (pickle.UnpicklingError, EOFError, ValueError, KeyError, IndexError, TypeError, AttributeError,
              OverflowError, RecursionError)
FREES = ("free_requested", "free_completed")
GROWTH = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
SILENT = ("snapshot", "user_defined")
SLOW_BYTES = 1 << 24  # a snapshot that takes a second to read
LIVE = ("active_allocated", "active_pending_free", "active_awaiting_free")  # the last: as PyTorch's documentation has it


@dataclass
class Source:
    """A trace: `path` for cachalot-replay to read by itself, or else `chunks` of text to be given to it."""

    name: str
    path: str = None
    chunks: object = None
    arguments: tuple = ()
    note: str = None
    device: int = None  # of a snapshot


# Columns of text as others write them: in another order, quoted, with more beside them or behind a byte order mark.
OWN, RMM = ("op", "id", "bytes", "stream"), ("Thread", "Time", "Action", "Pointer", "Size", "Stream")
FORMS = ((OWN, OWN[:3]), (RMM, RMM[2:5]))  # all columns, and those that must be there


def odd_header(begin):
    """(the columns of a header line that cachalot-replay does not know as it is, all that it wants), or None."""
    line = begin.partition(b"\n")[0]
    try:
        columns = [name.strip() for name in next(csv.reader([line.decode("utf-8-sig").strip()], skipinitialspace=True), ())]
    except (UnicodeDecodeError, csv.Error):
        return None
    known = line.rstrip(b"\r\n").decode("utf-8", "replace")
    return next(((columns, every) for every, least in FORMS if known != ",".join(every) and set(least) <= set(columns)), None)


def fields_of(line):
    """Of a line of text that others wrote; as it is, if that is no such line."""
    if '"' in line:
        with contextlib.suppress(csv.Error):
            return [field.strip() for field in next(csv.reader([line], skipinitialspace=True), ())]
    return [field.strip() for field in line.split(",")] if line.strip() else []


def in_order(chunks, columns, every, name):
    """The text with the columns as cachalot-replay wants them, line by line, so that it names the right one."""
    places = [columns.index(name) if name in columns else None for name in every]
    rest, is_first = b"", True
    for chunk in itertools.chain(chunks, [b"\n"]):
        text, _, rest = (rest + chunk).rpartition(b"\n")
        if len(rest) > CHUNK:
            raise Failure(3, f"{name} is no trace: it has a line of more than {CHUNK} bytes")
        lines = []
        for line in text.decode("utf-8-sig", "replace").split("\n") if text else ():
            row = fields_of(line)
            whole = len(row) == len(columns) or not row
            lines.append(",".join("0" if i is None else row[i] for i in places) if row and whole else line)
        if lines and is_first:
            lines[0], is_first = ",".join(every), False
        yield ("\n".join(lines) + "\n").encode() if lines else b""


def is_below(most, value):
    """Snapshots have numbers of any length."""
    return type(value) is int and 0 <= value < most


class PlainUnpickler(pickle.Unpickler):
    """Numbers, texts, lists and dictionaries, nothing else."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"it asks for {module}.{name}; only plain data is read")


def unpack(file, name):
    """The text of a gzip file in chunks; damage is named by the line it is in."""
    lines = 1
    try:
        while chunk := file.read1(CHUNK):
            lines += chunk.count(b"\n")
            yield chunk
    except DAMAGED as error:
        raise Failure(3, f"{name}: line {lines}: the gzip file is damaged from here on: {error}") from error


class Snapshot:
    """The events of one device, checked, and what was live before they begin."""

    def __init__(self, root, device, name):
        self.name = name
        traces = root.get("device_traces") if isinstance(root, dict) else None
        if not isinstance(traces, list) or not all(isinstance(t, list) for t in traces):
            raise Failure(3, f"{name}: no memory snapshot of PyTorch: it has no device_traces")
        self.device = self.choose(traces, device)
        self.events = traces[self.device]
        segments = root.get("segments")
        self.segments = [s for s in segments if isinstance(s, dict) and s.get("device") == self.device] \
            if isinstance(segments, list) else []
        self.unknown = sorted({event["action"] for event in self.events if isinstance(event, dict) and isinstance(event.get("action"), str)
                               and event["action"] not in ("alloc", "oom", *FREES, *GROWTH, *SILENT)})
        self.ends = self.last_of_a_free()
        self.before = self.live_before()

    def choose(self, traces, device):
        used = [i for i, trace in enumerate(traces) if trace]
        if not used:
            raise Failure(3, f"{self.name}: no events: call torch.cuda.memory._record_memory_history() first")
        if device is None and len(used) > 1:
            raise Failure(2, f"{self.name}: has events of devices {', '.join(map(str, used))}; choose one with --device")
        if device is not None and device not in used:
            raise Failure(2, f"{self.name}: has no events of device {device}, but of {', '.join(map(str, used))}")
        return used[0] if device is None else device

    def broken(self, number, reason):
        return Failure(3, f"{self.name}: event {number} of device {self.device}: {reason}")

    def read(self, number, event):
        """(action, address, size) of a well-formed event."""
        if not isinstance(event, dict) or not isinstance(event.get("action"), str):
            raise self.broken(number, "it has no action")
        action = event["action"]
        if action in SILENT or action in self.unknown:
            return action, 0, 0
        address, size = event.get("addr", 0 if action == "oom" else None), event.get("size")
        if not is_below(ADDRESS_MOST, address) or not is_below(SIZE_MOST, size):
            raise self.broken(number, "its address or size is no number")
        return action, address, size

    def last_of_a_free(self):
        """With which action a block is free: with the later of the two, unless the history was recorded without it (skip_actions)."""
        asked, again, completed = set(), False, False
        for number, event in enumerate(self.events):
            action, address, _ = self.read(number, event)
            completed = completed or action == FREES[1]
            again = again or action == "alloc" and address in asked
            if action == FREES[0]:
                asked.add(address)
        pending = {address for address, _ in self.blocks(LIVE[1:])}
        return FREES[1] if completed or (asked <= pending and not again) else FREES[0]

    def live_before(self):
        """{address: size} of blocks that the history does not see allocated: it keeps only so many events."""
        live, seen, before = set(), set(), {}
        for number, event in enumerate(self.events):
            action, address, size = self.read(number, event)
            if action == "alloc":
                if address in live:
                    raise self.broken(number, f"allocates {address:#x}, which is allocated already")
                live.add(address)
                seen.add(address)
            elif action in FREES:
                if address not in seen:
                    before[address] = size
                    seen.add(address)
                    live.add(address)
                if address not in live:
                    raise self.broken(number, f"frees {address:#x}, which is not allocated")
                if action == self.ends:
                    live.remove(address)
        for address, size in self.blocks(LIVE):
            if address not in seen:
                before[address] = size
        return before

    @staticmethod
    def requested(block, size):
        """What was asked for; PyTorch 2.0 says it in the block's history."""
        history = block.get("history")
        last = history[0] if isinstance(history, list) and history and isinstance(history[0], dict) else {}
        requested = block.get("requested_size", last.get("real_size", size))
        return requested if type(requested) is int and 0 < requested <= size else size

    def blocks(self, states):
        """(address, requested) of each block that is in one of these states at the end."""
        for segment in self.segments:
            place = segment.get("address")
            blocks = segment.get("blocks")
            for block in blocks if isinstance(blocks, list) else []:
                size = block.get("size") if isinstance(block, dict) else None
                address = block.get("address", place) if isinstance(block, dict) else None
                if not is_below(ADDRESS_MOST, address) or not is_below(SIZE_MOST, size):
                    raise Failure(3, f"{self.name}: a block of device {self.device} has no address or size")
                place = address + size
                if block.get("state") in states:
                    yield address, self.requested(block, size)

    def recorded_reserved(self):
        """The most that PyTorch itself had reserved; 0 if the snapshot does not say, or its events and segments do not agree."""
        sizes = [s.get("total_size") for s in self.segments]
        if None in sizes:
            return 0
        if not all(is_below(SIZE_MOST, size) for size in sizes):
            raise Failure(3, f"{self.name}: a segment of device {self.device} has a total_size that is no size")
        steps = [GROWTH[e["action"]] * e["size"] for e in self.events if e["action"] in GROWTH]
        levels = list(itertools.accumulate(steps, initial=sum(sizes) - sum(steps)))
        return max(levels) if all(is_below(SIZE_MOST, level) for level in levels) else 0

    def chunks(self):
        """The events as our CSV. A block is free when PyTorch has it back."""
        ids, streams, lines, count = {}, {}, ["op,id,bytes,stream"], 0
        for address in sorted(self.before):
            lines.append(f"a,{count},{self.before[address]},0")
            ids[address] = count
            count += 1
        for event in self.events:
            if event["action"] == "alloc":
                key = event.get("stream")
                stream = streams.setdefault(key if type(key) is int else 0, len(streams))
                lines.append(f"a,{count},{event['size']},{stream}")
                ids[event["addr"]] = count
                count += 1
            elif event["action"] == self.ends:
                lines.append(f"f,{ids.pop(event['addr'])},,0")
            elif event["action"] == "oom":
                lines.append(f"o,0,{event['size']},0")
            if len(lines) > 50000:
                yield ("\n".join(lines) + "\n").encode()
                lines = []
        yield ("\n".join(lines) + "\n").encode() if lines else b""


@contextlib.contextmanager
def memory_for(size):
    """No more than a pickle of so many bytes needs: one number in it can have Python make room for 2^32 objects."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", "rb") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    most = used + MEMORY_LEAST + MEMORY_PER_BYTE * size
    resource.setrlimit(resource.RLIMIT_AS, (most if soft == resource.RLIM_INFINITY else min(most, soft), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def open_snapshot(file, name, device):
    try:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if size > SLOW_BYTES and sys.stderr.isatty():
            say(f"cachalot: {name}: reading a snapshot of {size >> 20} MiB")
        with memory_for(size):
            root = PlainUnpickler(file).load()
    except MemoryError as error:
        raise Failure(3, f"{name}: this pickle is not read: it takes more memory than there is, or than {size} bytes should") from error
    except UNREADABLE as error:
        raise Failure(3, f"{name}: this pickle is not read: {str(error) or type(error).__name__}") from error
    except DAMAGED as error:
        raise Failure(3, f"{name}: the gzip file is damaged: {error}") from error
    snapshot = Snapshot(root, device, name)
    notes = []
    if snapshot.unknown:
        notes.append(f"{name}: actions that are not known are left out: {', '.join(printable(action)[:40] for action in snapshot.unknown[:8])}")
    if snapshot.before:
        notes.append(f"{len(snapshot.before)} block{'s were' if len(snapshot.before) > 1 else ' was'} allocated before the snapshot's history "
                     "begins; replayed first")
    return Source(name, chunks=snapshot.chunks(), note="\ncachalot: ".join(notes) or None, device=snapshot.device,
                  arguments=("--kind", "snapshot", "--recorded-reserved", str(snapshot.recorded_reserved())))


def read_header(begin, file, name):
    """(bytes read, the header of a recorded trace or None if it is none); `begin` was read already."""
    begin += file.read(cachalot_recorded.HEADER_BYTES - len(begin))
    if not begin.startswith(cachalot_recorded.MAGIC):
        return begin, None
    size = file.seek(0, os.SEEK_END)
    file.seek(len(begin))
    return begin, cachalot_recorded.Header(begin, size, name)


def unreadable(error, name):
    return Failure(3, f"{name}: {getattr(error, 'strerror', None) or f'line 1: the gzip file is damaged: {error}'}")


def open_recorded(begin, header, file, path, name, device):
    """`path`: where cachalot-replay reads it by itself; None if it is to be unpacked."""
    device = () if device is None else ("--device", str(device))
    chunks = None if path else itertools.chain([begin], unpack(file, name))
    return Source(name, path=path, chunks=chunks, arguments=device, note=header.note())


def recorded_events(path):
    """(header, iterator of rows) of a trace that CACHALOT_TRACE recorded, gzipped or not; None if it is another file."""
    name = printable(path)
    try:
        file = open_regular(path)
        if file.read(2) == b"\x1f\x8b":
            file.seek(0)
            file = gzip.GzipFile(fileobj=file)
        else:
            file.seek(0)
        _, header = read_header(b"", file, name)
    except DAMAGED as error:
        raise unreadable(error, name) from error
    return None if header is None else (header, cachalot_recorded.rows(header, unpack(file, name)))


def device_number(text):
    """The device that an option names, or None."""
    if text is not None and not (text.isascii() and text.isdecimal() and len(text) < 6):
        raise Failure(2, f"`{text}` is not the number of a device")
    return None if text is None else int(text)


def open_text(begin, chunks, path, name, device):
    """`path`: where cachalot-replay reads it by itself; None if it is to be unpacked."""
    if device is not None:
        raise Failure(2, f"{name}: a trace of text has no devices: leave out --device")
    odd = odd_header(begin)
    if odd:
        return Source(name, chunks=in_order(chunks, *odd, name))
    return Source(name, path=path, chunks=None if path else chunks)


def open_source(path, device=None):
    """The trace at `path`, whatever it is."""
    name = printable(path)
    try:
        file = open_regular(path)
        begin = file.read(2)
        if os.fspath(path).startswith(("/dev/", "/proc/")):
            path = None  # another file, or none, to cachalot-replay
        if begin == b"(\xb5":
            raise Failure(3, f"{name}: compressed by zstd; unpack it first, or compress it by gzip")
        if begin == b"\x1f\x8b":
            file.seek(0)
            file = gzip.GzipFile(fileobj=file)
            begin = file.peek(2)[:2]
        elif begin[:1] in PICKLES:
            file.seek(0)
        elif begin[:1] == b"{":
            raise Failure(3, f"{name}: line 1: this is JSON, not a trace; `cachalot run --trace FILE` records one")
        else:
            read, header = read_header(begin, file, name)
            if header and path:
                file.close()
                return open_recorded(read, header, None, path, name, device)
            if header:
                return open_recorded(read, header, file, None, name, device)
            return open_text(read, itertools.chain([read], unpack(file, name)), path, name, device)
    except DAMAGED as error:
        raise unreadable(error, name) from error
    if begin[:1] in PICKLES:
        return open_snapshot(file, name, device)
    try:
        read, header = read_header(b"", file, name)
    except DAMAGED:
        read, header = b"", None  # whoever reads it as text says where
    if header:
        return open_recorded(read, header, file, None, name, device)
    file.seek(0)
    return open_text(read, unpack(file, name), None, name, device)
