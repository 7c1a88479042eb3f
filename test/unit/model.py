"""The rules of the allocator, written down once more and as plainly as possible: lists, no clever structures.

Every free is reusable at once and every new segment lies above all before it, as in the certified replays.
"""

MIB = 1 << 20
OOM = 2
BASE = 0x7F0000000000
STATS = ("allocation", "allocated_bytes", "requested_bytes", "active", "active_bytes", "segment",
         "reserved_bytes", "inactive_split", "inactive_split_bytes")


class Block:
    """A part of a segment; `requested` is None while it is reusable."""

    def __init__(self, address, size, requested=None):
        self.address, self.size, self.requested = address, size, requested


class Segment:
    """A range from the driver, tiled by its blocks in order of address."""

    def __init__(self, address, size, small):
        self.address, self.size, self.small = address, size, small
        self.blocks = [Block(address, size)]
        self.idle_since = None


class Model:
    """One context on a device of `capacity` bytes."""

    def __init__(self, capacity, max_split=None, rounding=20 * MIB, large=20 * MIB, divisions=0, limit=None):
        self.capacity, self.limit = capacity, limit
        self.max_split, self.rounding, self.large, self.divisions = max_split, rounding, large, divisions
        self.segments, self.top, self.idle_clock = [], BASE, 0
        self.ever = {s: [0, 0] for s in STATS}
        self.gone = {s: [0, 0] for s in STATS}
        self.peak = {s: [0, 0, 0] for s in STATS}
        self.hits = self.retries = self.ooms = self.device_allocs = self.device_frees = 0
        self.pressed = False
        self.cornered = None  # when a small request last had to lie among large blocks

    # sizes
    def round(self, n):
        n = max(n, 512)
        if self.divisions > 1 and n > 512 * self.divisions:
            floor = 1 << (n.bit_length() - 1)
            step = floor // self.divisions
            return floor + -(-(n - floor) // step) * step
        return -(-n // 512) * 512

    def segment_size(self, size, least):
        if size <= MIB:
            return 2 * MIB
        if least or size >= 10 * MIB or size > self.large:
            return -(-size // (2 * MIB)) * 2 * MIB
        return self.large

    # books
    def count(self, stat, small, n):
        pool = 0 if small else 1
        if n < 0:
            self.gone[stat][pool] -= n
            return
        self.ever[stat][pool] += n
        now = [self.ever[stat][p] - self.gone[stat][p] for p in (0, 1)]
        self.peak[stat][pool] = max(self.peak[stat][pool], now[pool])
        self.peak[stat][2] = max(self.peak[stat][2], sum(now))

    def split_out(self, segment, block, sign):
        if len(segment.blocks) > 1:
            self.count("inactive_split", segment.small, sign)
            self.count("inactive_split_bytes", segment.small, sign * block.size)

    def reusable(self):
        return [(b.size, b.address, s, b) for s in self.segments for b in s.blocks if b.requested is None]

    def stays_whole(self, segment):
        """Since two thirds of the device were in use, or all of it."""
        return self.pressed and segment.size > self.large and not segment.small and len(segment.blocks) == 1

    # requests
    def best_fit(self, size, small):
        fits = [f for f in self.reusable() if f[2].small == small and f[0] >= size]
        if not fits:
            return None
        have, _, segment, block = min(fits, key=lambda f: f[:2])
        if self.stays_whole(segment) and size > MIB:
            return (segment, block) if have - size < 2 * MIB else None
        if not small and self.max_split is not None:
            if size < self.max_split <= have:
                return None
            if size >= self.max_split and have >= size + self.rounding:
                return None
        return segment, block

    def cut(self, segment, block, size):
        """Marks the block as taken, and gives back what is over if that is worth a block."""
        rest = block.size - size
        if segment.small or size <= MIB:
            worth = rest >= 512
        elif self.stays_whole(segment):
            worth = False
        else:
            worth = rest > MIB and (self.max_split is None or size < self.max_split)
        if worth:
            at = segment.blocks.index(block) + 1
            segment.blocks.insert(at, Block(block.address + size, rest))
            block.size = size
            self.split_out(segment, segment.blocks[at], +1)

    def grow(self, size, least=False):
        small, bytes_ = size <= MIB, self.segment_size(size, least)
        reserved = sum(s.size for s in self.segments)
        active = sum(self.ever["active_bytes"]) - sum(self.gone["active_bytes"])
        self.pressed |= active + size > min(self.capacity, self.limit or self.capacity) // 3 * 2
        if (self.limit is not None and reserved + bytes_ > self.limit) or reserved + bytes_ > self.capacity:
            self.pressed = True
            return None
        segment = Segment(self.top, bytes_, small)
        self.top += bytes_
        self.segments.append(segment)
        self.device_allocs += 1
        self.count("segment", small, 1)
        self.count("reserved_bytes", small, bytes_)
        return segment, segment.blocks[0]

    def release(self, most):
        """Whole idle segments, longest idle first, until `most` bytes are given back."""
        given = 0
        for segment in sorted((s for s in self.segments if s.idle_since is not None), key=lambda s: s.idle_since):
            if given >= most:
                break
            given += segment.size
            self.segments.remove(segment)
            self.device_frees += 1
            self.count("segment", segment.small, -1)
            self.count("reserved_bytes", segment.small, -segment.size)
        return given

    def take(self, size, small):
        """What is reusable, in the pool of small or large blocks."""
        found = self.best_fit(size, small)
        if found:
            self.hits += 1
            segment, block = found
            self.split_out(segment, block, -1)
            segment.idle_since = None
        return found

    def attainable(self, size):
        """Could it be served if all that is idle went back?"""
        loose = sum(s.size for s in self.segments if len(s.blocks) == 1 and s.blocks[0].requested is None)
        kept = sum(s.size for s in self.segments) - loose
        room = min(self.capacity, self.limit or self.capacity) - kept
        holes = [f[0] for f in self.reusable() if size <= MIB or not f[2].small]
        return -(-size // (2 * MIB)) * 2 * MIB <= room or size <= max(holes, default=0)

    def malloc(self, requested):
        size = self.round(requested)
        small = size <= MIB
        found = self.take(size, small)
        if not found and small and self.cornered == self.device_allocs + self.device_frees:
            found = self.take(size, small=False)
        if not found and size <= min(self.capacity, self.limit or self.capacity):
            found = self.grow(size)
        if not found and not self.attainable(size):
            self.ooms += 1
            return OOM, 0
        if not found and self.release(size):
            found = self.grow(size)
        if not found and small:
            found = self.take(size, small=False)
            self.cornered = self.device_allocs + self.device_frees if found else None
            if not found and self.release(size):
                found = self.grow(size)
        if not found:
            self.release(1 << 62)
            self.retries += 1
            found = self.grow(size, least=True)
        if not found:
            self.ooms += 1
            return OOM, 0
        segment, block = found
        self.cut(segment, block, size)
        block.requested = requested
        for stat, n in (("active", 1), ("active_bytes", block.size), ("requested_bytes", requested),
                        ("allocation", 1), ("allocated_bytes", block.size)):
            self.count(stat, block.size <= MIB, n)
        return 0, block.address

    def free(self, address):
        segment = next(s for s in self.segments if s.address <= address < s.address + s.size)
        i = next(i for i, b in enumerate(segment.blocks) if b.address == address)
        block = segment.blocks[i]
        for stat, n in (("active", 1), ("active_bytes", block.size), ("requested_bytes", block.requested),
                        ("allocation", 1), ("allocated_bytes", block.size)):
            self.count(stat, block.size <= MIB, -n)
        block.requested = None
        for j in (i + 1, i - 1):
            if 0 <= j < len(segment.blocks) and segment.blocks[j].requested is None:
                self.split_out(segment, segment.blocks[j], -1)
        while i + 1 < len(segment.blocks) and segment.blocks[i + 1].requested is None:
            block.size += segment.blocks.pop(i + 1).size
        while i > 0 and segment.blocks[i - 1].requested is None:
            i -= 1
            segment.blocks[i].size += segment.blocks.pop(i + 1).size
        self.split_out(segment, segment.blocks[i], +1)
        if len(segment.blocks) == 1:
            self.idle_clock += 1
            segment.idle_since = self.idle_clock
        return 0, 0

    def empty(self):
        return 0, self.release(1 << 62)

    def statistics(self):
        row = []
        for stat in STATS:
            for pool in (0, 1):
                row += [self.ever[stat][pool], self.gone[stat][pool], self.peak[stat][pool]]
            row.append(self.peak[stat][2])
        free = [f[0] for f in self.reusable()]
        return row + [self.hits, self.retries, self.ooms, self.device_allocs, self.device_frees, sum(free),
                      max(free, default=0), 1]
