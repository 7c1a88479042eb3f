"""Memory snapshots of PyTorch: pickles, which may come from anywhere.

A process of its own reads each, without making an object or calling a function, with no more memory and time than the size
of the file justifies. It writes the events as RMM's log, whose lines have a time.
"""

import gc
import gzip
import itertools
import json
import os
import pickle
import resource
import signal
import sys
import zlib

from cachalot_command.common.bounds import available_at_most, limit, memory_bounded
from cachalot_command.common.tools import Failure, say

MEMORY_LEAST, MEMORY_PER_BYTE = 1 << 28, 24  # bytes of memory per byte of a pickle; snapshots take up to 12
UNPACKED_MOST = 16 << 20  # bytes of a packed pickle that count beyond its packed size: 640 MiB of memory, and 9 s
SECONDS_LEAST, BYTES_A_SECOND = 5, 1 << 22  # processor time; snapshots take 1 s for 64 MiB
ADDRESS_MOST, SIZE_MOST = 1 << 64, 1 << 63
DAMAGED = (OSError, EOFError, zlib.error)
# What the unpickler raises for a malformed pickle.
UNREADABLE = (pickle.UnpicklingError, EOFError, ValueError, KeyError, IndexError, TypeError, AttributeError,
              OverflowError, RecursionError, SystemError)
FREES = ("free_requested", "free_completed")
GROWTH = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
MEMORY = ("alloc", "oom", *FREES, *GROWTH)
SILENT = ("snapshot", "user_defined", "annotate")  # no memory events
TIME_MOST = 1 << 53
PIECE = 1 << 20
SLOW_BYTES = 1 << 24  # takes about a second
LIVE = ("active_allocated", "active_pending_free", "active_awaiting_free")  # the last name is that of PyTorch's documentation


def is_below(most, value):
    """True for a number from 0 to below `most`. Snapshots may have numbers of any length."""
    return type(value) is int and 0 <= value < most


def is_memory_event(event):
    """True for an event that makes its device one of the snapshot; also for a malformed one, which is reported."""
    action = event.get("action") if isinstance(event, dict) else None
    return action in MEMORY if isinstance(action, str) else True


def host_events(root):
    """The number of events of pinned host memory, which PyTorch 2.15 keeps beside those of the devices."""
    traces = root.get("host_traces")
    lists = [trace for trace in traces if isinstance(trace, list)] if isinstance(traces, list) else []
    return sum(map(len, lists)) if lists else len(traces) if isinstance(traces, list) else 0


class PlainUnpickler(pickle.Unpickler):
    """Loads numbers, texts, lists and dictionaries, and nothing else."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"it asks for {module}.{name}; only plain data is read")


class Snapshot:
    """The checked events of one device, and the blocks that were live before them."""

    def __init__(self, root, device, name):
        self.name = name
        traces = root.get("device_traces") if isinstance(root, dict) else None
        if not isinstance(traces, list) or not all(isinstance(t, list) for t in traces):
            raise Failure(3, f"{name}: no memory snapshot of PyTorch: it has no device_traces")
        self.device = self.choose(traces, device, root)
        self.events = traces[self.device]
        segments = root.get("segments")
        self.segments = [s for s in segments if isinstance(s, dict) and s.get("device") == self.device] \
            if isinstance(segments, list) else []
        actions = {event["action"] for event in self.events if isinstance(event, dict) and isinstance(event.get("action"), str)}
        self.unknown = sorted(actions.difference(MEMORY, SILENT))
        self.left_out = {*self.unknown, *SILENT}
        self.steps = [self.read(number, event) for number, event in enumerate(self.events)]
        self.ends = self.last_of_a_free()
        self.before = self.live_before()
        self.host_events = host_events(root)

    def choose(self, traces, device, root):
        used = [i for i, trace in enumerate(traces) if any(map(is_memory_event, trace))]
        if not used and host_events(root):
            raise Failure(3, f"{self.name}: has events of pinned host memory (host_traces) alone, which the cache does not serve: "
                             "record with record_cuda=True")
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
        if action in self.left_out:
            return action, 0, 0
        address, size = event.get("addr", 0 if action == "oom" else None), event.get("size")
        if not is_below(ADDRESS_MOST, address) or not is_below(SIZE_MOST, size):
            raise self.broken(number, "its address or size is no number")
        return action, address, size

    def last_of_a_free(self):
        """The action that makes a block free: `free_completed`, unless the history was recorded without it (skip_actions)."""
        asked, again, completed = set(), False, False
        for action, address, _ in self.steps:
            completed = completed or action == FREES[1]
            again = again or action == "alloc" and address in asked
            if action == FREES[0]:
                asked.add(address)
        pending = {address for address, _ in self.blocks(LIVE[1:])}
        return FREES[1] if completed or (asked <= pending and not again) else FREES[0]

    def live_before(self):
        """{address: size} of blocks from before the history, which keeps a limited number of events."""
        live, seen, before = set(), set(), {}
        for number, (action, address, size) in enumerate(self.steps):
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
        """The bytes that were asked for. PyTorch 2.0 has them in the block's history."""
        history = block.get("history")
        last = history[0] if isinstance(history, list) and history and isinstance(history[0], dict) else {}
        requested = block.get("requested_size", last.get("real_size", size))
        return requested if type(requested) is int and 0 < requested <= size else size

    def blocks(self, states):
        """(address, requested bytes) of each block that has one of these states at the end."""
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

    def reserved(self):
        """(bytes reserved before the events, the most that was reserved); zeros if the snapshot does not say, or if events
        and segments contradict each other."""
        sizes = [s.get("total_size") for s in self.segments]
        if None in sizes:
            return 0, 0
        if not all(is_below(SIZE_MOST, size) for size in sizes):
            raise Failure(3, f"{self.name}: a segment of device {self.device} has a total_size that is no size")
        steps = [GROWTH[action] * size for action, _, size in self.steps if action in GROWTH]
        levels = list(itertools.accumulate(steps, initial=sum(sizes) - sum(steps)))
        return (levels[0], max(levels)) if all(is_below(SIZE_MOST, level) for level in levels) else (0, 0)

    def chunks(self, segments):
        """The events as RMM's log, with times in microseconds since 1970. A block is free when PyTorch has it back.
        `segments`: with the events of segments as well, which RMM's log does not know."""
        streams, lines = {}, ["Thread,Time,Action,Pointer,Size,Stream"]
        names = {"alloc": "allocate", self.ends: "free", **({action: action for action in GROWTH} if segments else {})}
        first = next((event["time_us"] for event in self.events if is_below(TIME_MOST, event.get("time_us"))), 0)
        lines += [f"0,{first},allocate,{address:#x},{self.before[address]},0" for address in sorted(self.before)]
        for event, (action, address, size) in zip(self.events, self.steps):
            time, stream = event.get("time_us"), event.get("stream")
            time = time if is_below(TIME_MOST, time) else first
            if action == "oom":
                lines.append(f"0,{time},allocate failure,(nil),{size},0")
            elif action in names:
                stream = streams.setdefault(stream if type(stream) is int else 0, len(streams))
                lines.append(f"0,{time},{names[action]},{address:#x},{size},{stream}")
            if len(lines) > 50000:
                yield ("\n".join(lines) + "\n").encode()
                lines = []
        yield ("\n".join(lines) + "\n").encode() if lines else b""


def seconds_for(size):
    return SECONDS_LEAST + size // BYTES_A_SECOND


def memory_for(size):
    return available_at_most(MEMORY_LEAST + MEMORY_PER_BYTE * size)


def load(file, name, size):
    """Loads the pickle with bounded memory and processor time. One number in a pickle can make Python allocate 2^32
    objects. A tuple that holds one tuple twice, and so on, makes the hash of a key take forever, and nothing interrupts
    that."""
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_CPU, seconds_for(size))
    try:
        return PlainUnpickler(file).load()
    except UNREADABLE as error:
        raise Failure(3, f"{name}: this pickle is not read: {str(error) or type(error).__name__}") from error
    except DAMAGED as error:
        raise Failure(3, f"{name}: the gzip file is damaged: {error}") from error


def tell(pipe, file, name, size, hint, device, segments):
    """Writes a line of JSON about the snapshot, and then its events."""
    try:
        try:
            with memory_bounded(memory_for(size)):
                snapshot = Snapshot(load(file, name, size), device, name)
        except MemoryError as error:
            raise Failure(3, f"{name}: this pickle is not read: it takes more memory than there is, or than {size} bytes should{hint}") from error
        before, most = snapshot.reserved()
        told = {"unknown": snapshot.unknown, "before": len(snapshot.before), "device": snapshot.device, "reserved": most,
                "reserved_before": before, "host_events": snapshot.host_events}
    except Failure as failure:
        pipe.write(json.dumps({"failure": [failure.code, str(failure)]}).encode() + b"\n")
        return
    pipe.write(json.dumps(told).encode() + b"\n")
    for chunk in snapshot.chunks(segments and most):
        pipe.write(chunk)


class Reader:
    """The process that reads a snapshot, and the pipe from it. `hint`: what to do if `size` is too little."""

    def __init__(self, file, name, size, device, segments=False, hint=""):
        self.name, self.size, self.hint = name, size, hint
        end, begin = os.pipe()
        self.process = os.fork()
        if not self.process:
            code = 1
            try:
                os.close(end)  # so that this process ends when the reader closes its end
                gc.disable()  # it would scan millions of dictionaries again and again
                with os.fdopen(begin, "wb") as pipe:
                    tell(pipe, file, name, size, hint, device, segments)
                code = 0
            finally:
                os._exit(code)
        os.close(begin)
        self.pipe = os.fdopen(end, "rb")

    def end(self):
        """Raises Failure if the reader did not finish."""
        self.pipe.close()
        code = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        if code == -signal.SIGXCPU:
            raise Failure(3, f"{self.name}: this pickle is not read: it takes more than {seconds_for(self.size)} s, and {self.size} bytes should not{self.hint}")
        if code:
            raise Failure(3, f"{self.name}: this pickle is not read: what read it was ended by signal {-code}" if code < 0 else
                          f"{self.name}: this pickle is not read: what read it has failed")

    def stop(self):
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)

    def told(self):
        try:
            line = self.pipe.readline()
        except BaseException:  # an interrupt, which the process may not have received
            self.stop()
            raise
        if not line.endswith(b"\n"):  # the process ended early
            self.end()
        told = json.loads(line)
        if "failure" in told:
            self.end()
            raise Failure(*told["failure"])
        return told

    def chunks(self):
        try:
            while chunk := self.pipe.read(1 << 20):
                yield chunk
        except BaseException:
            self.stop()
            raise
        self.end()


def justified(file):
    """(the bytes for which reading may take memory and time, whether the pickle has more). They are those of the pickle, but
    of a packed one at most the packed size and UNPACKED_MOST: anything may pack to a thousandth."""
    size, most = 0, UNPACKED_MOST
    if not isinstance(file, gzip.GzipFile):
        size, most = file.seek(0, os.SEEK_END), None
    else:
        most += os.fstat(file.fileno()).st_size
        while size <= most and (piece := file.read1(PIECE)):
            size += len(piece)
    file.seek(0)
    return (size, False) if most is None or size <= most else (most, True)


def read(file, name, device, segments):
    """(what the snapshot tells, its events in chunks of text). `segments`: with the events of segments."""
    try:
        size, has_more = justified(file)
    except DAMAGED as error:
        raise Failure(3, f"{name}: the gzip file is damaged: {error}") from error
    if size > SLOW_BYTES and sys.stderr.isatty():
        say(f"cachalot: {name}: reading a snapshot of {size >> 20} MiB")
    hint = "; unpack it by gunzip, and all its bytes count" if has_more else ""
    reader = Reader(file, name, size, device, segments, hint)
    return reader.told(), reader.chunks()
