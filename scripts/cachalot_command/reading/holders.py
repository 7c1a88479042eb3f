"""Who holds memory: the call sites of a report with what they held at the peak of their device, or at the end."""

import math
import re
from typing import NamedTuple

from cachalot_command.common.tools import printable
from cachalot_command.reading.report import get, number
from cachalot_command.reading.symbols import is_ours, resolve

MOMENTS = {"peak": "at the peak", "live": "at the end"}
SITES_MOST, FRAMES_MOST, TEXT_MOST = 4096, 64, 300
PYTHON = re.compile(r".*:\d+ [^ ]+\Z", re.DOTALL)  # file:line function
LIBRARY_PYTHON = re.compile(r"(^|/)(site-packages|dist-packages|lib/python3\.\d+)/|^<frozen ")
WRAPPER = re.compile(r"(ld-linux|ld-|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|c10|c10_cuda|torch\w*|cuda|cudart|cachalot|python3|ffi|rmm)\b"
                     r"|python3?(\.\d+)?\b|_ctypes\b|\?)")
OWN, LIBRARY, LAST = range(3)


class Holder(NamedTuple):
    """`error`: the standard error of `bytes`, 0 if they are exact. Frames are innermost first."""

    device: int
    kind: str
    bytes: int
    error: int
    blocks: int
    frames: tuple


def is_sample(report):
    return report.number("sites_mean_bytes") is not None


def frames_of_site(site):
    frames = get(site, "frames")
    frames = [frame for frame in frames[:FRAMES_MOST] if isinstance(frame, str)] if isinstance(frames, list) else []
    return tuple(printable(frame)[:TEXT_MOST] for frame in frames if not is_ours(frame))


def holders(report, moment):
    """What each site of a device held then, the largest first."""
    resolve(report)
    found = []
    for site in report.list("sites")[:SITES_MOST]:
        size, device = number(site, f"{moment}_bytes"), number(site, "device")
        if (size or 0) > 0 and device is not None:
            found.append(Holder(int(device), printable(get(site, "kind"))[:20], int(size), int(number(site, f"{moment}_error_bytes") or 0),
                                int(number(site, f"{moment}_blocks") or 0), frames_of_site(site)))
    return sorted(found, key=lambda holder: -holder.bytes)


def rank_of(frame):
    """OWN: a line of the program; LAST: an allocator's wrapper, the interpreter or libc."""
    if PYTHON.match(frame) and "!" not in frame:
        return LIBRARY if LIBRARY_PYTHON.search(frame) else OWN
    return LAST if WRAPPER.match(frame) else OWN


def own_line(frames):
    """The innermost line of the program itself; else of a library, else of what there is."""
    return min(frames, key=rank_of, default="unknown")


def by_line(found):
    """One holder for each line of code and kind, with that line as its only frame, the largest first."""
    lines = {}
    for holder in found:
        lines.setdefault((own_line(holder.frames), holder.kind, holder.device), []).append(holder)
    rows = [Holder(device, kind, sum(h.bytes for h in same), round(math.sqrt(sum(h.error ** 2 for h in same))),
                   sum(h.blocks for h in same), (line,)) for (line, kind, device), same in lines.items()]
    return sorted(rows, key=lambda row: -row.bytes)
