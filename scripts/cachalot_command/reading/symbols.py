"""Names for the frames of a report's call sites: the function at `libfoo.so+0x1234`, and its source line if the file has
it.

A report has only offsets, since nothing is looked up in the program itself. Function names come from the symbol tables of
the files, lines from `addr2line` if it is installed and the file has debug information.
"""

import bisect
import mmap
import os
import shutil
import struct
import subprocess

from cachalot_command.common.tools import Failure, open_regular, printable
from cachalot_command.reading.report import get

SECTION = struct.Struct("<2I4Q2I2Q")
SYMBOL = struct.Struct("<I2BH2Q")
SYMTAB, DYNSYM, FUNCTION, INDIRECT = 2, 11, 2, 10
FILE_MOST, SYMBOLS_MOST, SECONDS = 8 << 30, 4_000_000, 20


class Symbols:
    """The functions of one ELF file, by address."""

    def __init__(self, path):
        self.begins, self.functions = [], []
        try:
            with open_regular(path) as file:
                if os.fstat(file.fileno()).st_size < FILE_MOST:
                    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                        self.read(data)
        except (Failure, OSError, ValueError, struct.error, IndexError):
            pass  # no such file, or no ELF file: there are no names

    def read(self, data):
        if data[:6] != b"\x7fELF\x02\x01":
            return
        at, = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<2H", data, 58)
        if size != SECTION.size or not at:
            return
        sections = [SECTION.unpack_from(data, at + i * size) for i in range(count)]
        found = {}
        for _, kind, _, _, offset, length, link, _, _, _ in sections:
            if kind in (SYMTAB, DYNSYM) and link < count and length // SYMBOL.size < SYMBOLS_MOST:
                texts = sections[link][4]
                for name, info, _, section, value, bytes_long in SYMBOL.iter_unpack(data[offset:offset + length]):
                    if info & 15 in (FUNCTION, INDIRECT) and section and value:
                        found.setdefault(value, (texts + name, bytes_long))
        self.begins = sorted(found)
        self.functions = [(data[n:n + 256].split(b"\0", 1)[0].decode("utf-8", "replace"), length)
                          for n, length in (found[begin] for begin in self.begins)]

    def name(self, offset):
        """`function+0x12`, or None."""
        i = bisect.bisect_right(self.begins, offset) - 1
        if i < 0:
            return None
        name, length = self.functions[i]
        into = offset - self.begins[i]
        return f"{name}+{into:#x}" if name and (into < length or not length) else None


def lines_of(path, offsets):
    """{offset: 'file.c:31'}, found by addr2line."""
    tool = shutil.which("addr2line")
    if not tool or not os.path.isfile(path):
        return {}
    try:
        # A return address lies behind its call.
        done = subprocess.run([tool, "-e", path, *(f"{offset - 1:#x}" for offset in offsets)], capture_output=True,
                              text=True, errors="replace", timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != len(offsets):
        return {}
    named = {offset: line.rsplit(" (discriminator ", 1)[0] for offset, line in zip(offsets, lines)}
    return {offset: os.path.basename(line) for offset, line in named.items()
            if not line.startswith("?") and not line.endswith((":0", ":?"))}


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


def resolve(root):
    """Replaces frames of a report by names as far as they are known: `libfoo.so!bar+0x12 (foo.c:31)`."""
    try:
        names = {}
        for path, offsets in wanted(root).items():
            symbols, lines = Symbols(path), lines_of(path, sorted(offsets))
            for offset in offsets:
                name, line = symbols.name(offset - 1), lines.get(offset)
                if name:
                    function, _, into = name.rpartition("+")
                    name = f"{os.path.basename(path)}!{function}+{int(into, 16) + 1:#x}"
                names[path, offset] = (name or f"{os.path.basename(path)}+{offset:#x}") + (f" ({line})" if line else "")
        for site in get(root, "sites") or ():
            native = get(site, "native") or []
            own = get(site, "frames")[:-len(native) or None]
            site["frames"] = [*own, *(printable(names[root["modules"][p["module"]], int(p["offset"], 16)])
                                      if p["module"] is not None else "?" for p in native)]
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        pass  # a malformed report keeps its frames
    return root


def is_ours(frame):
    """True for a frame of the CUDA run-time or driver, which says nothing about the program."""
    return str(frame).startswith(("libcudart.", "libcuda."))
