"""The meaning of a report's figures, in sentences for a reader who sees them for the first time."""

import functools
import shlex

from cachalot_command.common.tools import printable
from cachalot_command.common.units import blocks_text, counted, ratio_text, size_text, times_text
from cachalot_command.reading.kinds import past_the_cache as kinds_past_the_cache
from cachalot_command.reading.report import get, number
from cachalot_command.reading.symbols import is_foreign, is_ours, resolve

FRAMES_SHOWN = 4


def site_text(site, sites):
    """The most telling frames, innermost first."""
    frames = sites[site] if type(site) is int and 0 <= site < len(sites) else []
    return " < ".join(frames[:FRAMES_SHOWN]) + (" < …" if len(frames) > FRAMES_SHOWN else "") or "-"


@functools.lru_cache(maxsize=None)
def sites_of(report):
    """The report's call sites, with names as far as they can be found."""
    resolve(report)
    return report.list("sites")


def unnamed(report):
    """A line on frames that got no names because another host wrote the report."""
    return [f"Call sites have no names: {report.text('process', 'hostname')} wrote this report, and its files may be others; "
            "--symbols looks into those of this host."] if is_foreign(report) and not report.symbols else []


def frames_of(report, index):
    """The most telling frames of a call site, innermost first; empty if it is not known."""
    sites = sites_of(report)
    if not isinstance(index, int) or not 0 <= index < len(sites):
        return []
    frames = get(sites[index], "frames")
    frames = [printable(frame) for frame in frames if not is_ours(frame)] if isinstance(frames, list) else []
    return frames[:FRAMES_SHOWN]


def past_the_cache(reports):
    """A line on memory that programs took past the cache, if there was any: the most of each kind in one of them."""
    kinds = {}
    for report in reports:
        for kind, most, leaked in kinds_past_the_cache(report):
            before = kinds.get(kind, (0, 0))
            kinds[kind] = max(before[0], most), max(before[1], leaked)
    taken = [f"{printable(kind)[:20]} {size_text(most)}" + (f" (leaked {size_text(leaked)})" if leaked else "")
             for kind, (most, leaked) in sorted(kinds.items(), key=lambda item: -item[1][0])]
    return [f"memory that was taken past the cache: {', '.join(taken)}"] if taken else []


def served(report):
    """A line on what the cache served and what went past it, if something did."""
    past = past_the_cache([report])
    count, most = report.number("totals", "requests") or 0, report.number("totals", "peak_allocated_bytes")
    what = f"{size_text(most)} at most in {counted(count, 'request')}" if count else "nothing"
    return [f"served by the cache: {what}; {line}" for line in past]


def coverage_advice(report):
    """Lines on what to do if the figures leave something out."""
    name = report.get("process", "exe")
    doctor = f"`cachalot doctor {shlex.quote(printable(name)[:200]) if isinstance(name, str) and name else 'PROGRAM'}`"
    return {
        "none": [f"Nothing of what this program allocated is in these figures. Next: {doctor} says whether the cache can get in "
                 "front of it; what loads CUDA by dlmopen it cannot serve."],
        "partial": ["The figures leave out what went past the cache. Next: start the whole program by `cachalot run`, not a part "
                    f"of it, before it touches CUDA; {doctor} looks for what stands in the way."],
    }.get(str(report.get("coverage", "status")), [])


def hook_order(report):
    """A line on other libraries that hook cudaMalloc, if there are any."""
    order = report.get("coverage", "hook_order")
    return [f"hooks of cudaMalloc, in the order of calls: {printable(order)}"] if isinstance(order, str) else []


def doubts(report):
    """Reasons why the figures may not be the whole story."""
    status = report.text("coverage", "status")
    if status != "full":
        reasons = report.get("coverage", "reasons")
        said = "; ".join(printable(reason) for reason in reasons if reason) if isinstance(reasons, list) else ""
        yield f"coverage {status}: {said or 'not all of its CUDA calls came through the cache'}"
        yield from coverage_advice(report)
    elif not report.number("totals", "requests"):
        yield "nothing was allocated through the cache"


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
    """Idle memory in pieces that are too small for larger requests."""
    reusable, largest = whole_of(device, "reusable_bytes"), whole_of(device, "largest_allocatable_bytes")
    if not reusable or largest >= reusable:
        return []
    return [f"The idle memory was in pieces: {size_text(reusable)} together, of which one request could have {size_text(largest)}. "
            f"One for more than {size_text(largest)} had to get new memory from the driver although enough was free in sum. "
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


def native_words(device):
    """The request from which on large blocks are ordinary segments, if there was one."""
    since = number(device, "counters", "native_since_request")
    return [f"Since request {since} large blocks are not mapped memory but the driver's own: a request had failed for which "
            "natively there was room."] if since else []


def fragmentation_words(device, trace=None):
    """Sentences on where the device's memory went. `trace`: the name of the recorded trace, if the figures come from one."""
    reserved, used = whole_of(device, "reserved_bytes"), whole_of(device, "allocated_bytes")
    if number(device, "statistics", "reserved_bytes", "all", "peak") is None and not reserved:
        return ["This trace has what the program asked for and gave back. `cachalot replay` says what memory that needs."]
    if not reserved:
        return ["No memory was taken from the driver through the cache on this device."]
    words = usage_words(used, reserved) + pending_words(device) + hole_words(device) + split_words(device) \
        + rounding_words(device) + native_words(device)
    if used / reserved < 0.9:
        record = "" if trace else "`cachalot run --trace FILE` records the program's requests, and "
        words.append(f"To waste less: {record}`cachalot tune {shlex.quote(trace or 'FILE')}` finds the settings that serve them "
                     "with the least memory.")
    return words


def size_of_leak(leak):
    """The size of leaked blocks: `of 64 MiB (67108864 bytes)`."""
    each, most = number(leak, "requested_bytes"), number(leak, "up_to_bytes")
    if get(leak, "rest"):
        return "of other sizes"
    if each is None:
        return f"of up to {size_text(most)}"
    return f"of {each:.0f} bytes" if each < 1024 else f"of {size_text(each)} ({each:.0f} bytes)"


def leak_text(leak):
    """`5 blocks of 4 MiB (4194304 bytes) on device 0`, or `2 blocks of pinned memory of 4 MiB (4194304 bytes)`."""
    count, kind, device = number(leak, "count") or 0, get(leak, "kind"), get(leak, "device")
    what = "" if kind in (None, "device") else f"of {printable(kind)[:20]} memory "
    where = f" on device {printable(device)}" if device is not None or not what else ""
    return f"{blocks_text(count)} {what}{size_of_leak(leak)}{where}"


def figures_of(event):
    """A sentence with the figures of an event that has no explanation."""
    lines = [f"The program asked for {size_text(number(event, 'requested_bytes'))} while "
             f"{size_text(number(event, 'allocated_bytes'))} were allocated and "
             f"{size_text(number(event, 'reserved_bytes'))} reserved; "
             f"{size_text(number(event, 'device_free_bytes'))} were free on the device, "
             f"{size_text(number(event, 'reusable_bytes'))} idle in the cache, for one request "
             f"{size_text(number(event, 'largest_allocatable_bytes'))}."]
    if get(event, "native_would_fit") is True:
        lines.append("Without the cache it would have fitted: only fragmentation stood in the way.")
    return lines


def oom_lines(event):
    """What to say about an out-of-memory event."""
    explanation = get(event, "explanation")
    lines = [printable(explanation)] if isinstance(explanation, str) and explanation else figures_of(event)
    serve = get(event, "would_serve")
    if isinstance(serve, list) and serve:
        lines.append("Would have served it: CACHALOT_CONF=" + " or ".join(printable(s)[:100] for s in serve[:10]))
    return lines


def oom_title(asked, time, has_time=True):
    when = f"after {time / 1e9:.3f} s" if has_time else f"operation {time:,}"
    return f"{size_text(asked)} asked for, {when}: out of memory"


def oom_words(report, device, sites):
    """The out-of-memory events of the device, for the page."""
    events = [e for e in report.list("oom_events") if number(e, "device") == device]
    out = []
    for event in events[:1000]:
        site = site_text(get(event, "site"), sites)
        where = [f"Asked for at {site}"] if site != "-" else []
        time = int(number(event, "time_ns") or 0)
        out.append({"time": time, "lines": oom_lines(event) + where,
                    "title": oom_title(number(event, "requested_bytes"), time)})
    return out


def failure_lines(trace):
    """A line on requests that were out of memory when the trace was recorded."""
    count = trace["recorded_failures"]
    if not count:
        return []
    tried = ("tried again, and given back at once where it was served" if trace["failures_tried"] else
             "left out; --capacity tries it again")
    return [f"Out of memory when this was recorded: {times_text(count)}; {tried}"]
