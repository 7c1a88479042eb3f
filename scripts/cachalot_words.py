"""What a report's figures mean, in sentences for somebody who sees them for the first time."""

import shlex

from cachalot_report import get, number, ratio_text, size_text
from cachalot_tools import printable

FRAMES_SHOWN = 4


def site_text(site, sites):
    """The frames that say most, innermost first."""
    frames = sites[site] if type(site) is int and 0 <= site < len(sites) else []
    return " < ".join(frames[:FRAMES_SHOWN]) + (" < …" if len(frames) > FRAMES_SHOWN else "") or "-"


def coverage_advice(report):
    """Lines on what to do next where the figures leave something out."""
    name = report.get("process", "exe")
    doctor = f"`cachalot doctor {shlex.quote(printable(name)[:200]) if isinstance(name, str) and name else 'PROGRAM'}`"
    return {
        "none": [f"Nothing of what this program allocated is in these figures. Next: {doctor} says whether the cache can get in "
                 "front of it; what loads CUDA by RTLD_DEEPBIND or dlmopen it cannot serve."],
        "partial": ["The figures leave out what went past the cache. Next: start the whole program by `cachalot run`, not a part "
                    f"of it, before it touches CUDA; {doctor} looks for what stands in the way."],
    }.get(str(report.get("coverage", "status")), [])


def whole_of(device, key):
    return number(device, "at_peak_reserved", key) or 0


def usage_words(used, reserved):
    if used >= reserved:
        return [f"When most memory was reserved ({size_text(reserved)}), the program held all of it."]
    share, idle = used / reserved, reserved - used
    text = f"When most memory was reserved ({size_text(reserved)}), the program held {size_text(used)} of it, " \
           f"{ratio_text(share)}. The other {size_text(idle)} lay idle: the cache kept it for later requests."
    if share >= 0.9:
        return [text + " That is little."]
    return [text]


def hole_words(device):
    """Idle memory that no larger request can use."""
    reusable, largest = whole_of(device, "reusable_bytes"), whole_of(device, "largest_allocatable_bytes")
    if not reusable or largest >= reusable:
        return []
    return [f"The idle memory was in pieces: {size_text(reusable)} together, the largest {size_text(largest)}. A request "
            f"for more than {size_text(largest)} had to get new memory from the driver although enough was free in sum. "
            "This is called fragmentation."]


def split_words(device):
    split = whole_of(device, "inactive_split_bytes")
    return [f"{size_text(split)} of the idle memory lay between blocks in use, so it could not be given back to the "
            "driver, for other programs or larger pieces."] if split else []


def pending_words(device):
    pending = whole_of(device, "active_bytes") - whole_of(device, "allocated_bytes")
    return [f"{size_text(pending)} had been freed by the program, but work on the GPU that might use it was not done."] \
        if pending > 0 else []


def rounding_words(device):
    active, requested = whole_of(device, "active_bytes"), number(device, "at_peak_reserved", "requested_bytes")
    if not active or requested is None or (active - requested) / active < 0.01:
        return []
    return [f"Rounding up sizes cost {size_text(active - requested)}, {ratio_text(1 - requested / active)} of the memory in "
            "use: the program asks for many sizes that are no multiples of 512 bytes, or for just over a step."]


def fragmentation_words(device):
    """Sentences on where the device's memory went."""
    reserved, used = whole_of(device, "reserved_bytes"), whole_of(device, "allocated_bytes")
    if number(device, "statistics", "reserved_bytes", "all", "peak") is None and not reserved:
        return ["This trace has what the program asked for and gave back. `cachalot replay` says what memory that needs."]
    if not reserved:
        return ["No memory was taken from the driver through the cache on this device."]
    words = usage_words(used, reserved) + pending_words(device) + hole_words(device) + split_words(device) \
        + rounding_words(device)
    if used / reserved < 0.9:
        words.append("To waste less: `cachalot run --trace FILE` records the program's requests, and `cachalot tune FILE` "
                     "finds the settings that serve them with the least memory.")
    return words


def figures_of(event):
    """What stood in the way, where the event does not explain itself."""
    lines = [f"{size_text(number(event, 'allocated_bytes'))} were allocated and "
             f"{size_text(number(event, 'reserved_bytes'))} reserved; "
             f"{size_text(number(event, 'device_free_bytes'))} were free on the device, "
             f"{size_text(number(event, 'reusable_bytes'))} idle in the cache, the largest piece "
             f"{size_text(number(event, 'largest_allocatable_bytes'))}."]
    if get(event, "native_would_fit") is True:
        lines.append("Without the cache it would have fitted: only fragmentation stood in the way.")
    return lines


def oom_lines(event):
    """What there is to say of an out-of-memory event."""
    explanation = get(event, "explanation")
    lines = [printable(explanation)] if isinstance(explanation, str) and explanation else figures_of(event)
    serve = get(event, "would_serve")
    if isinstance(serve, list) and serve:
        lines.append("Each of these settings would have served it: " + ", ".join(printable(s)[:100] for s in serve[:10]))
    return lines


def oom_title(asked, time):
    return f"{size_text(asked)} asked for, after {time / 1e9:.3f} s: out of memory"


def oom_words(report, device, sites):
    """The device's out-of-memory events, for the page."""
    events = [e for e in report.list("oom_events") if number(e, "device") == device]
    out = []
    for event in events[:1000]:
        site = site_text(get(event, "site"), sites)
        where = [f"Asked for at {site}"] if site != "-" else []
        time = int(number(event, "time_ns") or 0)
        out.append({"time": time, "lines": oom_lines(event) + where,
                    "title": oom_title(number(event, "requested_bytes"), time)})
    return out
