"""Where mapped memory lay at each moment, as far as events tell.

Mapped memory moves without an event, and memory that goes back to the driver mostly has no address by then (address 0). Two
things are certain: the amount is what is reserved, and each block lies in memory. So idle memory is moved below a block
that has none, the lowest first, and goes back from the highest address on, as in the library. At the end all lies where the
report says.
"""

import bisect
import math

from cachalot_command.reading.history import Block, Segment
from cachalot_command.reading.sources import SMALL_SEGMENT, blocks_after, fill

GRAIN = 2 << 20  # granularity of the driver
MOVES = ("segment_map", "segment_unmap")
BLOCKS = ("alloc", "free", "free_requested", "free_completed")


class Runs:
    """Ranges of addresses in order, which neither overlap nor touch."""

    def __init__(self, ranges=()):
        self.begins, self.ends = [], []
        for begin, end in ranges:
            self.add(begin, end)

    def __iter__(self):
        return iter(list(zip(self.begins, self.ends)))

    def size(self):
        return sum(self.ends) - sum(self.begins)

    def parts(self, begin, end):
        """The parts of [begin, end) that are in the ranges."""
        i, j = bisect.bisect_right(self.ends, begin), bisect.bisect_left(self.begins, end)
        return [(max(b, begin), min(e, end)) for b, e in zip(self.begins[i:j], self.ends[i:j]) if begin < end]

    def gaps(self, begin, end):
        """The parts of [begin, end) that are not."""
        edges = [begin, *(edge for part in self.parts(begin, end) for edge in part), end]
        return [(b, e) for b, e in zip(edges[::2], edges[1::2]) if b < e]

    def add(self, begin, end):
        if begin >= end:
            return
        i, j = bisect.bisect_left(self.ends, begin), bisect.bisect_right(self.begins, end)
        self.begins[i:j], self.ends[i:j] = [min([begin, *self.begins[i:j]])], [max([end, *self.ends[i:j]])]

    def remove(self, begin, end):
        i, j = bisect.bisect_right(self.ends, begin), bisect.bisect_left(self.begins, end)
        left = [(b, e) for edge in zip(self.begins[i:j], self.ends[i:j]) for b, e in ((edge[0], begin), (end, edge[1])) if b < e]
        self.begins[i:j], self.ends[i:j] = [b for b, _ in left], [e for _, e in left]


def range_of(thing):
    return thing.address, thing.address + thing.size


def blocks_before(events, listed):
    """Blocks from before the first event: those whose first event is a free, and those that only the list of the end has."""
    first = {}
    for event in events:
        if event.action in BLOCKS:
            first.setdefault(event.address, event)
    left = [b for s in listed for b in s.blocks if b.state != "inactive" and b.address not in first]
    return left + [Block(e.address, e.size, e.requested, "pending" if e.action == "free_completed" else "active", e.site)
                   for e in first.values() if e.action != "alloc"]


class Mapped:
    """`steps`: (number of the event before which memory moves, address, bytes mapped there; negative: unmapped).
    `segments`: those of the end; `mapped` has the addresses of those in mapped memory."""

    def __init__(self, history, events):
        listed, sizes = history.segments or [], [e.size for e in events if e.action in MOVES]
        self.grain = math.gcd(*sizes) or GRAIN
        self.phase = next((e.address % self.grain for e in events if e.action in MOVES and e.address), 0)
        self.memory, self.idle, self.others = Runs(), Runs(), Runs()  # idle: whole grains that hold no block
        self.live, self.ends, self.steps, self.untold = [], {}, [], 0  # untold: reserved bytes at unknown addresses
        self.guessed = []  # ranges from which memory was taken by a guess
        self.before, self.driver = blocks_before(events, listed), self.ordinary(events, listed)
        own = [s for s in listed if s.address not in self.at_end]
        self.begin(history, events, own)
        for index, event in enumerate(events):
            self.step(index, event)
        if history.segments is not None:
            self.end(len(events), Runs(map(range_of, own)))
        self.mapped = {s.address for s in own} if listed else set(self.memory.begins)
        self.segments = listed if history.segments is not None else self.made(events)

    def ordinary(self, events, listed):
        """{address: size} of segments at the beginning that are not mapped memory. If the final list does not say and
        mapped memory exists, a large segment without events counts as mapped."""
        told = {}
        for event in events:
            if event.action in ("segment_alloc", "segment_free"):
                told.setdefault(event.address, []).append(event)
        known = Runs(map(range_of, [*listed, *(e for several in told.values() for e in several)]))
        moved = any(e.action in MOVES or (e.action in BLOCKS and known.gaps(*range_of(e))) for e in events)
        kept = [s for s in listed if s.address not in told and not (moved and s.pool == "large" if s.mapped is None else s.mapped)]
        self.at_end = {s.address for s in listed if s.address in told or s in kept}
        before = [*kept, *(several[0] for several in told.values() if several[0].action == "segment_free")]
        return {s.address: s.size for s in before}

    def begin(self, history, events, own):
        """Puts memory at the beginning: below the blocks that are there, and where later memory was that no event put
        there."""
        for address, size in self.driver.items():
            self.others.add(address, address + size)
        for block in self.before:
            self.hold(0, *range_of(block))
        room = history.levels[2] - self.others.size() - self.memory.size()
        fresh = Runs(range_of(e) for e in events if e.action == "segment_map")
        for thing in (*own, *(e for e in events if e.action in ("alloc", "segment_unmap"))) if room > 0 else ():
            for begin, end in self.absent(self.down(thing.address), self.up(thing.address + thing.size), fresh):
                end = min(end, begin + room)
                room -= end - begin
                if begin < end and thing.address:
                    self.put(0, begin, end)
                    self.idle.add(begin, end)
        self.untold = max(0, room)
        self.steps.clear()

    def step(self, index, event):
        begin, end = range_of(event)
        if event.action == "alloc":
            self.hold(index, begin, end)
        elif event.action in ("free", "free_completed"):
            self.release(begin)
        elif event.action == "segment_map":
            parts = self.absent(begin, end) if begin else []
            for part in parts:
                self.put(index, *part)
                self.idle.add(*part)
            self.guess_again(index, event.size - sum(e - b for b, e in parts))
        elif event.action == "segment_unmap":
            self.give_back(index, begin, event.size)
        elif event.action == "segment_alloc":
            for part in self.memory.parts(begin, end):  # mapped memory cannot lie there: a guess was wrong
                self.drop(index, *part)
                self.untold += part[1] - part[0]
            self.others.add(begin, end)
            self.driver[begin] = event.size
        elif event.action == "segment_free":
            self.others.remove(begin, end)
            self.driver.pop(begin, None)

    def down(self, address):
        return address - (address - self.phase) % self.grain

    def up(self, address):
        return address + (self.phase - address) % self.grain

    def absent(self, begin, end, *more):
        """The parts without memory."""
        parts = [(begin, end)]
        for runs in (self.memory, self.others, *more):
            parts = [gap for part in parts for gap in runs.gaps(*part)]
        return parts

    def put(self, index, begin, end):
        self.memory.add(begin, end)
        self.steps.append((index, begin, end - begin))

    def drop(self, index, begin, end):
        self.memory.remove(begin, end)
        self.idle.remove(begin, end)
        self.steps.append((index, begin, begin - end))

    def take(self, index, size, last):
        """Removes idle memory: first that at unknown addresses, then the lowest (last = 0) or the highest (last = -1)."""
        known = max(0, size - self.untold)
        self.untold -= size - known
        while known and self.idle.begins:
            begin, end = self.idle.begins[last], self.idle.ends[last]
            least = max(begin, end - known)
            begin, end = (least, end) if last else (begin, begin + end - least)
            self.drop(index, begin, end)
            self.guessed.append((begin, end))
            known -= end - begin

    def guess_again(self, index, size):
        """Memory came where some should lie already: an earlier guess took the wrong part. Restores what the guesses took."""
        while size and self.guessed:
            begin, end = self.guessed.pop()
            for part in self.absent(begin, min(end, begin + size)):
                self.put(index, *part)
                self.idle.add(*part)
                size -= part[1] - part[0]
        self.untold += size

    def give_back(self, index, address, size):
        for part in self.idle.parts(address, address + size) if address else ():
            self.drop(index, *part)
            size -= part[1] - part[0]
        self.take(index, size, -1)

    def hold(self, index, begin, end):
        """Adds a block, with memory below it."""
        if begin >= end or self.others.parts(begin, end):
            return
        self.release(begin)
        bisect.insort(self.live, begin)
        self.ends[begin] = end
        self.idle.remove(self.down(begin), self.up(end))
        for gap in self.memory.gaps(begin, end):
            for part in self.absent(self.down(gap[0]), self.up(gap[1])):
                self.take(index, part[1] - part[0], 0)
                self.put(index, *part)

    def release(self, begin):
        end = self.ends.pop(begin, None)
        if end is None:
            return
        place, low, high = bisect.bisect_left(self.live, begin), self.down(begin), self.up(end)
        del self.live[place]
        if place and self.ends[self.live[place - 1]] > low:
            low += self.grain
        if place < len(self.live) and self.live[place] < high:
            high -= self.grain
        for part in self.memory.parts(low, high):
            self.idle.add(*part)

    def end(self, index, listed):
        """Moves memory to where the final list says. Memory that can only go back (SYNC_MEMOPS was set) is not in the list,
        as it has no addresses."""
        for run in self.memory:
            for part in listed.gaps(*run):
                self.drop(index, *part)
        for run in listed:
            for part in self.memory.gaps(*run):
                self.put(index, *part)

    def made(self, events):
        """The segments at the end, if there is no list of them."""
        left = sorted(blocks_after(events, self.before), reverse=True)
        runs = [(begin, end - begin) for begin, end in self.memory]
        return [fill(Segment(address, size, "small" if size <= SMALL_SEGMENT and address in self.driver else "large", []), left)
                for address, size in sorted([*self.driver.items(), *runs])]
