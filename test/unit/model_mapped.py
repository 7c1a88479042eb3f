"""The rules of mapped memory, as plainly as possible. Where a block lies is the allocator's to choose; what the model knows is what
must be true wherever it lies, told from what the device has: which memory is below which address."""

from model import MIB, OOM, STATS

RANGES = range(1 << 44, 1 << 45)  # addresses of mapped memory
GRAIN = 2 * MIB
PAGE = 4096  # of the host
ALLOCATED, REUSABLE = 0, 2
EXACT = ("allocation", "allocated_bytes", "requested_bytes", "active", "active_bytes")


def up(n, grain):
    return -(-n // grain) * grain


class Answer:
    """A line of the driver's, with names."""

    def __init__(self, numbers):
        take = iter(numbers)
        self.code, self.address = next(take), next(take)
        self.now, self.peak = {}, {}
        for stat in STATS:
            row = [next(take) for _ in range(7)]
            self.now[stat] = [row[0] - row[1], row[3] - row[4]]
            self.peak[stat] = [row[2], row[5], row[6]]
        self.hits, _, self.ooms, self.allocs, self.frees, self.reusable, self.largest, self.valid = (next(take) for _ in range(8))
        self.used, self.most_used, self.fired = next(take), next(take), next(take)
        self.below = {next(take): (next(take), next(take), next(take)) for _ in range(next(take))}  # address: handle, bytes, access
        self.chunks = {handle: size for handle, size, _ in self.below.values()}
        self.segments = {next(take): next(take) for _ in range(next(take))}
        rest = list(take)
        rows = [rest[i:i + 5] for i in range(0, len(rest), 5)]
        self.blocks = [row[:4] for row in rows]  # address, size, requested, state
        self.among_large = {row[0] for row in rows if row[4] and row[1] <= MIB}  # small ones

    def total(self, stat):
        return sum(self.now[stat])


class Mapped:
    """One context with `expandable_segments:True`: follows the operations, and judges each answer."""

    def __init__(self, capacity, handle, limit=None):
        self.capacity, self.handle = capacity, handle  # handle: bytes of the largest
        self.most = capacity if limit is None else min(capacity, limit)
        self.live, self.mallocs, self.segments = {}, 0, {}  # number: address, requested, size
        self.peak = {stat: [0, 0, 0] for stat in EXACT}
        self.others = self.used = self.memory = self.busy = self.allocs = self.hits = self.failures = 0  # memory: of chunks
        self.idle = self.wholes = 0  # bytes now, and those of whole chunks
        self.sizes, self.irregular = {}, 0
        self.cornered = None  # what the driver had given and got back at the last of them
        self.rests = False  # nothing was asked for or freed since the last look
        self.disturbed = self.as_native = False

    def pieces(self, answer, begin, size):
        """What of the memory [begin, begin + size) is: handle, from, to."""
        at, end = max(address for address in answer.below if address <= begin), begin + size
        while at < end:
            handle, have, access = answer.below[at]
            assert access, "no access"
            assert at + have > begin, "nothing below its start"
            yield handle, max(begin - at, 0), min(end - at, have)
            at += have

    def check_memory(self, answer):
        """All blocks have memory, and no two the same; returns what holds something of the program's."""
        parts, busy = [], set()
        for address, size, _, state in answer.blocks:
            if address in RANGES:
                mine = list(self.pieces(answer, address, size))
            else:
                segment = max(s for s in answer.segments if s <= address)
                assert address + size <= segment + answer.segments[segment]
                mine = [(-segment, address - segment, address - segment + size)]
            parts += mine
            busy |= {part[0] for part in mine if state == ALLOCATED}
        parts.sort()
        for one, two in zip(parts, parts[1:]):
            assert one[0] != two[0] or one[2] <= two[1], "two blocks have the same memory"
        return busy

    def check_size(self, address, size, requested, among_large):
        rounded = up(max(requested, 512), 512)
        slack = 0
        if address in among_large or (address in RANGES and rounded > MIB // 4):
            slack = -rounded % PAGE  # and large blocks begin on a page
            assert rounded < MIB or address % PAGE == 0 or rounded == MIB
        elif self.disturbed and MIB // 4 < rounded <= MIB:
            slack = -rounded % PAGE  # mapping has failed
        elif rounded > MIB:
            slack = GRAIN - 512 if self.as_native else max(GRAIN, rounded // 8)
        assert rounded <= size <= rounded + slack

    def check_books(self, answer):
        held = {b[0]: b for b in answer.blocks if b[3] == ALLOCATED}
        assert sorted((b[0], b[2], b[1]) for b in held.values()) == sorted(self.live.values())
        sums = {stat: [0, 0] for stat in EXACT}
        for _, size, requested, _ in held.values():
            pool = int(size > MIB)
            for stat, n in (("allocation", 1), ("allocated_bytes", size), ("requested_bytes", requested), ("active", 1), ("active_bytes", size)):
                sums[stat][pool] += n
        for stat in EXACT:
            assert answer.now[stat] == sums[stat], stat
            now = [*sums[stat], sum(sums[stat])]
            self.peak[stat] = [max(pair) for pair in zip(self.peak[stat], now)]
            assert answer.peak[stat] == self.peak[stat], stat
        free = [b[1] for b in answer.blocks if b[3] == REUSABLE]
        assert (answer.reusable, answer.largest) == (sum(free), max(free, default=0))
        reserved = answer.total("reserved_bytes")
        assert reserved <= answer.peak["reserved_bytes"][2] <= answer.most_used
        assert reserved <= answer.used <= reserved + self.failures * self.handle
        assert self.disturbed or (answer.used == reserved and answer.total("segment") >= len(answer.chunks) + len(answer.segments))

    def is_exact(self, size):
        """Sizes that hardly come again: packing.c."""
        if size > MIB:
            size = up(size, PAGE)
            at = size // 512 * 0x9e3779b97f4a7c15 % 2 ** 64 >> 32 & 511
            change = -1 if self.sizes.get(at) == size else int(size >= 32 * MIB)
            self.sizes[at], self.irregular = size, max(-16, min(16, self.irregular + change))
        few = sum(MIB < requested <= 16 * MIB for _, requested, _ in self.live.values()) <= 16  # in more, half a granule each counts
        return size > MIB and self.irregular > 0 and not self.as_native and few

    def is_apart(self, size):
        """Blocks that lie apart from large ones: arena_is_apart."""
        return size <= MIB // 4 or (size <= MIB and self.as_native) or (size < MIB and self.irregular > 0)

    def check_growth(self, size, grown, mapped):
        """An idle handle of several chunks may fit no gap."""
        assert self.disturbed or self.handle > GRAIN or grown == 0 or self.wholes == 0, "grows though something is idle"
        most = up(size, GRAIN) if mapped and size > MIB else 0  # at last chunks are shared after all
        assert not self.as_native or grown <= most

    def check_alone(self, answer, size):
        mine = {handle for handle, _, _ in self.pieces(answer, answer.address, size)}
        assert self.disturbed or sum(answer.chunks[h] for h in mine) == up(size, GRAIN), "more than natively"
        for address, other, _, state in answer.blocks:
            if address in RANGES and state == ALLOCATED and address != answer.address:
                theirs = {handle for handle, _, _ in self.pieces(answer, address, other)}
                assert self.disturbed or not mine & theirs, "shares a chunk"

    def malloc(self, answer, requested, before):
        size = up(max(requested, 512), 512)
        held = self.busy
        exact = self.is_exact(size)
        overdrawn = self.used + self.others > self.capacity  # no real device ever is
        room = 0 if overdrawn else min(self.most, self.capacity - self.others)
        self.disturbed |= bool(answer.fired)
        if answer.code == 0:
            among_others = answer.address in answer.among_large and self.is_apart(size)
            if among_others or (size == MIB and not self.as_native and answer.address % PAGE):
                again = self.cornered == answer.allocs + answer.frees
                assert self.disturbed or again or held + GRAIN > room, "among others though there is memory"
                self.cornered = answer.allocs + answer.frees
            have = next(b[1] for b in answer.blocks if b[0] == answer.address)
            self.live[self.mallocs] = (answer.address, requested, have)
            self.check_size(answer.address, have, requested, answer.among_large)
            assert answer.hits - self.hits == (answer.allocs == self.allocs)
        self.mallocs += 1
        busy = self.look(answer)
        if answer.code == 0:
            self.check_growth(size, self.memory - before, answer.address in RANGES)
            if exact and answer.address in RANGES and held + up(size, GRAIN) <= room:
                self.check_alone(answer, size)
            if self.as_native and size > MIB and answer.address in RANGES and not self.disturbed:
                assert held + up(size, GRAIN) > min(self.most, self.capacity - self.others), "mapped though the driver has room"
            return
        assert answer.code == OOM
        if self.disturbed:
            return
        assert busy + (GRAIN if size <= MIB else up(size, GRAIN)) > room, "out of memory though there is some"
        assert size > MIB or all(have < size for _, have, _, state in answer.blocks if state == REUSABLE), "out of memory beside a hole"
        if size > MIB:
            native = sum(have if address in answer.among_large else up(n, GRAIN) if n > MIB else 0 for address, n, have in self.live.values())
            native += answer.now["reserved_bytes"][0] + up(size, GRAIN)
            room = max(self.capacity - answer.used - self.others, 0)
            self.as_native |= native <= min(self.most, answer.total("reserved_bytes") + room)

    def return_idle(self, answer, before):
        """All that is idle, if nothing was asked for or freed since the last look; else what was idle long enough."""
        rests, busy = self.rests, self.look(answer)
        assert answer.used <= before
        if rests and not self.disturbed:
            assert answer.used == busy, "a program at rest keeps idle memory"
        self.rests = True

    def look(self, answer):
        """What is there now; returns the bytes that cannot be given back."""
        self.disturbed |= bool(answer.fired)
        busy = self.check_memory(answer)
        self.memory = answer.used - sum(answer.segments.values())
        assert self.disturbed or self.memory >= sum(answer.chunks.values())  # a spare handle is mapped nowhere
        idle = [size for handle, size in answer.chunks.items() if handle not in busy]
        chunks = sum(answer.chunks[handle] for handle in busy if handle > 0)
        self.idle, self.wholes = self.memory - chunks, idle.count(GRAIN)
        return chunks + sum(answer.segments[-s] for s in busy if s < 0)

    def follow(self, op, n, numbers):
        """One operation, and what was answered."""
        answer = Answer(numbers)
        memory, used, busy = self.memory, self.used, self.busy
        self.failures += op == "x"
        if op == "f" and n in self.live:
            assert answer.code == 0
            del self.live[n]
        if op == "o":
            self.others = n
        if op == "m":
            self.malloc(answer, n, memory)
        elif op == "r":
            self.return_idle(answer, used)
        self.busy = self.look(answer)
        if op == "f":
            assert answer.used == used
        self.rests &= op not in "mf"
        if op == "e" and not self.disturbed:
            assert answer.address == used - busy and answer.used == self.busy, "the cache is not empty"
        self.check_books(answer)
        assert answer.valid == 1
        self.used, self.allocs, self.hits, self.segments = answer.used, answer.allocs, answer.hits, answer.segments
