"""Live pages, read by the table of fields that each page holds, without a signal, ptrace, or help of the process.

A page is a file in memory that its process writes; reading it costs the process nothing. Its content is checked before use:
it may be damaged, or made by any process of this user.
"""

import collections
import os
import stat
import struct
import time

from cachalot_command.common.tools import page_directory, printable
from cachalot_command.reading.series import SERIES_BYTES, SERIES_MOST, columns_of, series_at

MAGIC, FORMAT = b"CACHALOT", 1
HEADER = struct.Struct("=8s12I")
FIELD = struct.Struct("=56s4I8s")
NUMBER = struct.Struct("@Q")  # native, so that it is read in one access
PAGE_BYTES_MOST, FIELDS_MOST, DEVICES_MOST, PAGES_MOST = 64 << 20, 10000, 1024, 10000
DEVICE_FIELDS = ("used", "ordinal", "total_bytes", "sequence", "num_hits", "num_fence_waits",
                 "fence_wait_ns", "num_ooms", "asked_bytes", "asked_ns", "given_bytes")
ASLEEP = 2  # of the page's number sleep.state; 3: waking
PEAKS = ("allocated_bytes", "reserved_bytes")
SUMS = ("allocation", "allocated_bytes", "reserved_bytes")
TABLES, TABLES_MOST = {}, 100  # {bytes of a table of fields: the fields}
TORN_TRIES, POINTS_OF_MINUTE = 5, 650
HISTORY_S, HISTORY_LEAST_S, HISTORY_LEAST, QUARTERS = 60, 8, 8, 4


class BadPage(Exception):
    """A page that cannot be used; the text says why."""


def rank_of(text):
    """A rank as reports have it: a number where the launcher gave one, else text; None without one."""
    return int(text) if len(text) < 10 and text.isascii() and text.isdecimal() else printable(text) or None


def text_of(data):
    return data.split(b"\0", 1)[0].decode("utf-8", "replace")


class Page:
    """One page, open."""

    def __init__(self, path):
        self.path = path
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        try:
            self.file = os.open(path, flags)
        except OSError as error:
            raise BadPage(f"cannot be opened: {error.strerror}") from error
        try:
            self.check_file()
            self.fields = self.read_fields()
            self.read_identity()
        except BaseException:
            os.close(self.file)
            raise

    def close(self):
        os.close(self.file)

    def check_file(self):
        status = os.fstat(self.file)
        if not stat.S_ISREG(status.st_mode):
            raise BadPage("is not a regular file")
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise BadPage("belongs to, or can be reached by, another user")
        if not HEADER.size <= status.st_size <= PAGE_BYTES_MOST:
            raise BadPage("has not the size of a page")
        self.size = status.st_size

    def read(self, size=None):
        """The first bytes, by default all that are not events."""
        data = os.pread(self.file, size or self.size, 0)
        if len(data) != (size or self.size):
            raise BadPage("is cut off")
        return data

    def read_fields(self):
        """{name: (offset, stride, parts, part stride)}, read from the page."""
        magic, version, _, size, count, offset, _, _, _, _, _, series, many = HEADER.unpack(self.read(HEADER.size))
        if magic != MAGIC:
            raise BadPage("is not a page")
        if version != FORMAT:
            raise BadPage("is a page of another version of cachalot")
        if size != self.size or count > FIELDS_MOST or offset + count * FIELD.size > size:
            raise BadPage("is a damaged page")
        self.size = offset + count * FIELD.size  # series and events lie behind this
        data = self.read()
        table = data[offset:]
        if table not in TABLES:  # pages of one version have one
            TABLES.clear() if len(TABLES) > TABLES_MOST else None
            TABLES[table] = {text_of(name): tuple(place) for name, *place, _ in FIELD.iter_unpack(table)}
        self.series_places = [series + i * SERIES_BYTES for i in range(min(many, SERIES_MOST))]
        fields = TABLES[table]
        self.cache_bins = {part: [name for name in fields if name.rpartition(".")[0] == f"cache.{part}"]
                           for part in ("allocated", "freed")}
        return fields

    def number(self, data, name, row=0):
        """One number: of the page, the sum of parts, or of the row of a device."""
        if name not in self.fields:
            raise BadPage("is a page of another version of cachalot")
        offset, stride, parts, part_stride = self.fields[name]
        at = offset + row * stride
        if parts > FIELDS_MOST or at + max(parts - 1, 0) * part_stride + NUMBER.size > len(data):
            raise BadPage("is a damaged page")
        return sum(NUMBER.unpack_from(data, at + i * part_stride)[0] for i in range(parts or 1))

    def caches_of(self, data, row):
        """The places of thread caches that count for a device, from the first one on. None if the page has none."""
        if "cache.device" not in self.fields:
            return []
        offset, _, parts, stride = self.fields["cache.device"]
        if parts > FIELDS_MOST or offset % 8 or stride % 8 or offset + max(parts - 1, 0) * stride + NUMBER.size > len(data):
            raise BadPage("is a damaged page")
        devices = memoryview(data)[:len(data) // 8 * 8].cast("Q")[offset // 8::max(stride // 8, 1)][:parts].tolist()
        return [i * stride for i, device in enumerate(devices) if device == row + 1]

    def cached(self, data, name, caches):
        """The counts that threads keep for a device in these thread caches."""
        if not caches or name not in self.fields:
            return 0
        at = self.fields[name][0]
        if at + caches[-1] + NUMBER.size > len(data):
            raise BadPage("is a damaged page")
        return sum(NUMBER.unpack_from(data, at + part)[0] for part in caches)

    def bins(self, data, part, caches):
        return sum(self.cached(data, name, caches) for name in self.cache_bins[part]) if caches else 0

    def text(self, data, name, row=0):
        if name not in self.fields:
            raise BadPage("is a page of another version of cachalot")
        offset, stride = self.fields[name][:2]
        at = offset + row * stride
        return text_of(data[at:at + 512])

    def read_identity(self):
        data = self.read()
        self.pid, self.start_ticks, self.start_ns = (self.number(data, n) for n in ("pid", "start_ticks", "start_monotonic_ns"))
        self.generation = self.number(data, "generation")
        self.exe, self.program, self.hostname, self.session = (
            self.text(data, n) for n in ("exe", "program", "hostname", "session"))
        self.rank = rank_of(self.text(data, "rank"))
        self.is_asleep = False
        self.is_here = self.number(data, "pid_namespace") == os.stat("/proc/self/ns/pid").st_ino

    def row(self, data, row):
        """The present figures of one device."""
        values = {name: self.number(data, f"device.{name}", row) for name in DEVICE_FIELDS}
        caches = self.caches_of(data, row)
        for name in SUMS:
            taken, freed = (sum(self.number(data, f"device.{name}.{part}.{pool}_pool", row)
                                for pool in ("small", "large")) for part in ("allocated", "freed"))
            if name == "allocation":
                taken, freed = (was + self.bins(data, part, caches)
                                for was, part in ((taken, "allocated"), (freed, "freed")))
            elif name == "allocated_bytes":
                taken, freed = (was + self.cached(data, f"cache.{part}_bytes", caches)
                                for was, part in ((taken, "allocated"), (freed, "freed")))
            values[name] = max(taken - freed, 0)
            values[f"{name}_ever"] = taken
        values.update({f"peak_{name}": self.number(data, f"device.{name}.peak.all", row) for name in PEAKS})
        values["num_hits"] += self.bins(data, "allocated", caches)
        values["name"] = self.text(data, "device.name", row)
        values["uuid"] = self.text(data, "device.uuid", row)
        return values

    def free(self):
        """{row of a device: bytes that were free when the driver was last asked}."""
        try:
            found = [series_at(self.file, place, 1) for place in self.series_places]
        except struct.error:
            raise BadPage("is cut off") from None
        return {one[0]: one[1][-1].free for one in found if one and one[1]}

    def minute(self, columns):
        """{row of a device: most allocated bytes in each part of the last minute}."""
        now = (time.monotonic_ns() - self.start_ns) / 1e6
        try:
            found = [series_at(self.file, place, POINTS_OF_MINUTE) for place in self.series_places]
        except struct.error:
            raise BadPage("is cut off") from None
        return {one[0]: [pair[0] for pair in columns_of(one[1], now - 60000, now, columns)] for one in found if one}

    def is_torn(self, data, count):
        """True if the process changed a row while `data` was read."""
        offset, stride = self.fields.get("device.sequence", (0, 0))[:2]
        for row in range(count):
            before = self.number(data, "device.sequence", row)
            now = os.pread(self.file, NUMBER.size, offset + row * stride)
            if before % 2 or now != NUMBER.pack(before):
                return True
        return False

    def sample(self):
        """(time, [figures of each device in use])."""
        for _ in range(TORN_TRIES):
            data = self.read()
            count = HEADER.unpack_from(data)[8]
            if count > DEVICES_MOST:
                raise BadPage("is a damaged page")
            torn = self.is_torn(data, count)
            if not torn:
                break
        self.is_asleep = "sleep.state" in self.fields and self.number(data, "sleep.state") >= ASLEEP
        return time.monotonic(), [{**self.row(data, row), "row": row, "torn": torn}
                                  for row in range(count) if self.number(data, "device.used", row)]


def stat_fields(pid):
    """The fields of /proc/PID/stat behind the name, or None."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


def maps_have(pid, name):
    """True if the process has mapped the file, or if nobody may look."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            return any(name in line for line in file)
    except OSError:
        return True


def growth_of(history):
    """Bytes per second by which allocated memory grows; 0: it does not grow; None: not known yet.

    The minimum of each quarter of the last minute is compared, because programs give memory back at each step. Each minimum
    must be higher than the one before it.
    """
    if len(history) < HISTORY_LEAST or history[-1][0] - history[0][0] < HISTORY_LEAST_S:
        return None
    length = len(history) / QUARTERS
    parts = [list(history)[round(i * length):round((i + 1) * length)] for i in range(QUARTERS)]
    least = [min(part, key=lambda sample: sample[1]) for part in parts]
    if any(a[1] >= b[1] for a, b in zip(least, least[1:])):
        return 0
    return (least[-1][1] - least[0][1]) / max(least[-1][0] - least[0][0], 1e-9)


class Process:
    """A page of a living process, and the changes since the last look."""

    def __init__(self, page):
        self.page, self.place = page, None
        self.last, self.devices = None, []
        self.history = {}

    def is_alive(self):
        """True unless the process has ended or was replaced by exec. Its maps are read once, and again when exec may have
        happened."""
        page = self.page
        if not page.is_here:
            return True  # it is in another PID namespace
        fields = stat_fields(page.pid)
        if fields is None or len(fields) < 26:
            return False
        ended = fields[0] in (b"Z", b"X") and int(fields[17]) <= 1
        if ended or int(fields[19]) != page.start_ticks:
            return False
        place = (fields[23], fields[25])  # addresses of code and stack, which change at exec
        if place != self.place:
            name = os.fsencode(os.path.basename(page.path))
            if fields[0] != b"Z" and not maps_have(page.pid, name):
                return False
            self.place = place
        return True

    def minutes(self, columns):
        """As of the page, by the number of the device; nothing where the page cannot be read any more."""
        try:
            found = self.page.minute(columns)
        except (BadPage, OSError):
            return {}
        return {row["ordinal"]: found[row["row"]] for row in self.last[1] if row["row"] in found}

    def update(self):
        now, rows = self.page.sample()
        before = {row["ordinal"]: row for row in self.last[1]} if self.last else {}
        seconds = now - self.last[0] if self.last else 0
        self.devices = [self.device(row, before.get(row["ordinal"]), now, seconds) for row in rows]
        self.last = (now, rows)

    def device(self, row, before, now, seconds):
        history = self.history.setdefault(row["ordinal"], collections.deque())
        history.append((now, row["allocated_bytes"]))
        while history[0][0] < now - HISTORY_S:
            history.popleft()

        def rate(key):
            return max(row[key] - before[key], 0) / seconds if before and seconds > 0 else None

        requests, reserved = row["allocation_ever"], row["reserved_bytes"]
        waited = rate("fence_wait_ns")
        return {
            "device": row["ordinal"], "name": row["name"], "uuid": row["uuid"],
            "total_bytes": row["total_bytes"], "allocated_bytes": row["allocated_bytes"],
            "reserved_bytes": reserved, "waste_bytes": max(reserved - row["allocated_bytes"], 0),
            "peak_allocated_bytes": row["peak_allocated_bytes"], "peak_reserved_bytes": row["peak_reserved_bytes"],
            "blocks": row["allocation"], "requests": requests, "hits": row["num_hits"],
            "hit_ratio": min(row["num_hits"] / requests, 1) if requests else None,
            "requests_per_s": rate("allocation_ever"), "hits_per_s": rate("num_hits"),
            "fence_waits": row["num_fence_waits"], "fence_waits_per_s": rate("num_fence_waits"),
            "fence_wait_ratio": None if waited is None else waited / 1e9,
            "asked_bytes": row["asked_bytes"], "asked_ns": row["asked_ns"], "given_bytes": row["given_bytes"],
            "ooms": row["num_ooms"], "growing_bytes_per_s": growth_of(history),
            "torn": row["torn"]}


class Watch:
    """All living processes of this user that have a page."""

    def __init__(self, directory=None):
        self.directory = directory or page_directory()
        self.is_named = bool(directory or os.environ.get("CACHALOT_PAGE_DIR"))
        self.processes = {}  # by path
        self.problems = {}  # path: problem

    def paths(self):
        try:
            with os.scandir(self.directory) as entries:
                names = [e.path for e in entries if e.name.endswith(".page")]
        except OSError as error:
            if self.is_named or not isinstance(error, FileNotFoundError):  # the first program makes the usual one
                self.problems[self.directory] = error.strerror
            return set()
        return set(sorted(names)[:PAGES_MOST])

    def drop(self, path, problem=None):
        self.processes.pop(path).page.close()
        if problem:
            self.problems[path] = problem

    def look(self):
        """Reads all pages again; returns the living processes in order of pid."""
        self.problems = {}
        paths = self.paths()
        for path in paths - self.processes.keys():
            try:
                self.processes[path] = Process(Page(path))
            except BadPage as problem:
                self.problems[path] = str(problem)
        for path, process in list(self.processes.items()):
            try:
                if path not in paths or not process.is_alive():
                    self.drop(path)
                else:
                    process.update()
            except (BadPage, OSError) as problem:
                self.drop(path, str(problem))
        return sorted(self.processes.values(), key=lambda p: (p.page.pid, p.page.generation))
