"""Names for the frames of a report's call sites: the function at `libfoo.so+0x1234`, and its source line if the file has
it.

A report has only offsets, since nothing is looked up in the program itself. Function names come from the symbol tables of
the files, lines from `addr2line` if it is installed and the file has debug information.
"""

import bisect
import os
import re
import resource
import shutil
import stat
import struct
import subprocess
import time

from cachalot_command.common.tools import Failure, open_regular, printable
from cachalot_command.reading.report import get

HEADER_BYTES = 64
SECTION = struct.Struct("<2I4Q2I2Q")
SYMBOL = struct.Struct("<I2BH2Q")
SYMTAB, DYNSYM, FUNCTION, INDIRECT = 2, 11, 2, 10
NAME_MOST, AT_ONCE = 256, SYMBOL.size << 15
MODULES_MOST, SYMBOLS_MOST, SECONDS_MOST = 512, 4_000_000, 20  # of all reports together
ADDR2LINE_BYTES = 4 << 30  # its memory


class Budget:
    """What may still be read."""

    def __init__(self):
        self.modules, self.symbols, self.seconds, self.names = MODULES_MOST, SYMBOLS_MOST, SECONDS_MOST, {}

    def left(self, since):
        return self.seconds - (time.monotonic() - since)


budget = Budget()


def read_at(file, at, size):
    return os.pread(file.fileno(), size, at)


def tables_of(file):
    """(offset, bytes, offset of the names) of an ELF file's symbol tables: at most one of each kind."""
    header = read_at(file, 0, HEADER_BYTES)
    if header[:6] != b"\x7fELF\x02\x01" or len(header) < HEADER_BYTES:
        return []
    at, = struct.unpack_from("<Q", header, 40)
    size, count = struct.unpack_from("<2H", header, 58)
    if size != SECTION.size or not at:
        return []
    data = read_at(file, at, size * count)
    sections = list(SECTION.iter_unpack(data[:len(data) // size * size]))
    tables = {}
    for _, kind, _, _, offset, length, link, _, _, _ in sections:
        if kind in (SYMTAB, DYNSYM) and link < len(sections):
            tables.setdefault(kind, (offset, length, sections[link][4]))
    return list(tables.values())


def nearest(file, table, offsets, best, since):
    """Enters into `best`, for each gap before one of the sorted `offsets`, the last function that begins in it."""
    at, length, names = table
    length = min(length, budget.symbols * SYMBOL.size)
    budget.symbols -= length // SYMBOL.size
    for place in range(at, at + length, AT_ONCE):
        data = read_at(file, place, min(AT_ONCE, at + length - place))
        if len(data) < SYMBOL.size or budget.left(since) <= 0:
            return
        for name, info, _, section, value, size in SYMBOL.iter_unpack(data[:len(data) // SYMBOL.size * SYMBOL.size]):
            if info & 15 in (FUNCTION, INDIRECT) and section and value:
                i = bisect.bisect_left(offsets, value)
                if i < len(offsets) and (best[i] is None or best[i][0] < value):
                    best[i] = value, size, names + name


def functions_of(path, offsets, since):
    """{offset: 'function+0x12'} by the symbol tables of an ELF file; `offsets` are sorted."""
    found, last = {}, None
    with open_regular(path) as file:
        best = [None] * len(offsets)
        for table in tables_of(file):
            nearest(file, table, offsets, best, since)
        for offset, function in zip(offsets, best):
            last = function or last  # the nearest one may begin before an earlier offset
            if last and (offset - last[0] < last[1] or not last[1]):
                name = read_at(file, last[2], NAME_MOST).split(b"\0", 1)[0].decode("utf-8", "replace")
                if name:
                    found[offset] = f"{name}+{offset - last[0]:#x}"
    return found


def lines_of(path, offsets, seconds):
    """{offset: 'file.c:31'}, found by addr2line."""
    tool = shutil.which("addr2line")
    if not tool or seconds <= 0:
        return {}
    # A return address lies behind its call.
    asked = "".join(f"{offset - 1:#x}\n" for offset in offsets)
    try:
        done = subprocess.run([tool, "-e", path], input=asked, capture_output=True, text=True, errors="replace", timeout=seconds, check=False,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDR2LINE_BYTES,) * 2))
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != len(offsets):
        return {}
    named = {offset: line.rsplit(" (discriminator ", 1)[0] for offset, line in zip(offsets, lines)}
    return {offset: os.path.basename(line) for offset, line in named.items()
            if not line.startswith("?") and not line.endswith((":0", ":?"))}


def is_module(path):
    """True for what may be opened: a regular file with an absolute path. Even opening something else may have effects."""
    try:
        return os.path.isabs(path) and stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def read_names(path, offsets):
    """Enters the names of these offsets of a file into the budget's, unless they are there."""
    names = budget.names.setdefault(os.path.realpath(path), {})
    offsets = sorted(offsets - names.keys())
    if not offsets or budget.modules <= 0 or budget.seconds <= 0:
        return names
    budget.modules -= 1
    since, functions, lines = time.monotonic(), {}, {}
    try:
        functions = functions_of(path, [offset - 1 for offset in offsets], since)
        lines = lines_of(path, offsets, budget.left(since))
    except (Failure, OSError, ValueError, OverflowError, struct.error):
        pass  # no ELF file, or a damaged one: there are no names
    budget.seconds = budget.left(since)
    for offset in offsets:
        names[offset] = functions.get(offset - 1), lines.get(offset)
    return names


def wanted(root):
    """{path: {offsets}} of all frames."""
    modules, found = get(root, "modules"), {}
    for site in get(root, "sites") or ():
        for place in get(site, "native") or ():
            module, offset = get(place, "module"), get(place, "offset")
            known = isinstance(module, int) and isinstance(offset, str) and module < len(modules)
            if known and isinstance(modules[module], str):
                found.setdefault(modules[module], set()).add(int(offset, 16))
    return found


def is_foreign(report):
    """True for a report with frames to name that another host has written, where a path means another file."""
    return report.text("process", "hostname") != printable(os.uname().nodename) and any(get(site, "native") for site in report.list("sites"))


def name_of(path, offset, names):
    """`libfoo.so!bar+0x12 (foo.c:31)`, as far as it is known."""
    function, line = names.get(offset, (None, None))
    base = os.path.basename(path)
    if function:
        function, _, into = function.rpartition("+")
        base += f"!{function}+{int(into, 16) + 1:#x}"
    else:
        base += f"+{offset:#x}"
    return base + (f" ({line})" if line else "")


def resolve(report):
    """Replaces frames of a report by names as far as they are known: `libfoo.so!bar+0x12 (foo.c:31)`."""
    root = report.root
    try:
        names = {}
        for path, offsets in wanted(root).items() if report.symbols or not is_foreign(report) else ():
            known = read_names(path, offsets) if is_module(path) else {}
            names.update({(path, offset): name_of(path, offset, known) for offset in offsets})
        for site in get(root, "sites") or () if names else ():
            native = get(site, "native") or []
            own = get(site, "frames")[:-len(native) or None]
            site["frames"] = [*own, *(printable(names[root["modules"][p["module"]], int(p["offset"], 16)])
                                      if p["module"] is not None else "?" for p in native)]
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        pass  # a malformed report keeps its frames
    return root


def is_ours(frame):
    """True for a frame of the CUDA run-time or driver, which says nothing about the program."""
    return re.match(r"libcuda\.|libcudart[.-]", str(frame)) is not None  # wheels mangle names: libcudart-9f92e4c3.so.13.3.29
