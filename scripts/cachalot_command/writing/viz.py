"""A history as PyTorch's memory snapshot, for pytorch.org/memory_viz and torch/cuda/_memory_viz.py."""

import pickle
import re

from cachalot_command.reading.history import Block, Segment
from cachalot_command.reading.mapped import MOVES, Mapped
from cachalot_command.reading.report import get, number

STATES = {"active": "active_allocated", "pending": "active_pending_free", "inactive": "inactive"}
SMALL_MOST = 1 << 20  # bytes of a block of the small pool
DRIVER = {"segment_alloc": "segment_map", "segment_free": "segment_unmap"}
PYTHON_FRAME = re.compile(r"([^!]+):([0-9]{1,9}) (.+)")  # train.py:31 step
NATIVE_FRAME = re.compile(r"(.+?)!(.+?)(?: \((.+):([0-9]{1,9})\))?")  # libfoo.so!bar+0x12 (bar.c:31)


def frame(text):
    match = PYTHON_FRAME.fullmatch(text)
    if match:
        return {"filename": match[1], "line": int(match[2]), "name": match[3]}
    match = NATIVE_FRAME.fullmatch(text)
    if not match:
        return {"filename": "??", "line": 0, "name": text}
    return {"filename": match[3] or match[1], "line": int(match[4] or 0), "name": match[2]}


def block_object(block, frames):
    # In PyTorch's own snapshots an inactive block keeps the requested size of its last use.
    return {"address": block.address, "size": block.size, "requested_size": block.requested,
            "state": STATES[block.state], "frames": frames[block.site]}


def segment_object(segment, device, frames, is_mapped):
    blocks = segment.blocks
    return {"device": device, "address": segment.address, "total_size": segment.size, "stream": 0,
            "segment_type": segment.pool, "segment_pool_id": (0, 0), "is_expandable": is_mapped,
            "allocated_size": sum(b.size for b in blocks if b.state == "active"),
            "active_size": sum(b.size for b in blocks if b.state != "inactive"),
            "requested_size": sum(b.requested for b in blocks if b.state != "inactive"),
            "frames": [], "blocks": [block_object(b, frames) for b in blocks]}


def device_free(source):
    """{(device, requested bytes): free bytes of the device} of the out-of-memory events."""
    if source.report is None:
        return {}
    return {(number(e, "device"), number(e, "requested_bytes")): int(number(e, "device_free_bytes") or 0)
            for e in source.report.list("oom_events")}


def step_entries(steps, begin_us, events):
    """{event number: moves of mapped memory before it}. A viewer that goes back then finds each block in a segment."""
    entries = {}
    for index, address, size in steps:
        time = events[min(index, len(events) - 1)].time
        entries.setdefault(index, []).append(
            {"action": "segment_map" if size > 0 else "segment_unmap", "addr": address, "size": abs(size), "stream": 0,
             "time_us": begin_us + time // 1000, "frames": []})
    return entries


def names_of(history, steps):
    """Other names for segment events, if mapped memory touches an ordinary segment: the viewer joins the two, and then
    finds what was mapped but not what was allocated."""
    edges = {edge for _, address, size in steps for edge in (address, address + abs(size))}
    touched = any(e.action in DRIVER and not edges.isdisjoint((e.address, e.address + e.size)) for e in history.events)
    return DRIVER if touched else {}


def trace_entries(history, mapped, frames, begin_us, free):
    """The events in PyTorch's form. An event has the requested size, not that of the block."""
    steps, names, entries = step_entries(mapped.steps, begin_us, history.events), names_of(history, mapped.steps), []
    for index, event in enumerate(history.events):
        entries += steps.get(index, ())
        if event.action in ("fence_wait", "ask", *MOVES):
            continue
        size = event.size if event.action.startswith("segment_") else event.requested
        entry = {"action": names.get(event.action, event.action), "addr": event.address, "size": size, "stream": 0,
                 "time_us": begin_us + event.time // 1000, "frames": frames[event.site]}
        if event.action == "oom":
            del entry["addr"]
            entry["device_free"] = free.get((history.device, event.requested), 0)
        entries.append(entry)
    return entries + steps.get(len(history.events), [])


def host_parts(source, frames, begin_us):
    """(host_segments, host_traces) of pinned memory, each allocation a segment of its own; of what the events say."""
    entries, live = [], {}
    for kind, event in source.uncached:
        if kind != "pinned":
            continue
        actions = ("alloc",) if event.action == "alloc" else ("free_requested", "free_completed")
        entries += [{"action": action, "addr": event.address, "size": event.size, "stream": 0,
                     "time_us": begin_us + event.time // 1000, "frames": frames[event.site]} for action in actions]
        if event.action == "alloc":
            live[event.address] = event
        else:
            live.pop(event.address, None)
    segments = [Segment(e.address, e.size, "large" if e.size > SMALL_MOST else "small",
                        [Block(e.address, e.size, e.size, "active", e.site)]) for _, e in sorted(live.items())]
    return [segment_object(s, 0, frames, False) for s in segments], [entries]


def settings(source):
    """The options in use, by PyTorch's names."""
    report_config = source.report.get("config") if source.report else None
    values = {k: str(get(v, "value")) for k, v in (report_config or {}).items()} \
        if isinstance(report_config, dict) else {}
    return {"PYTORCH_CUDA_ALLOC_CONF": ",".join(f"{k}:{v}" for k, v in sorted(values.items()))}


def snapshot(source, begin_us):
    """What torch.cuda.memory._snapshot() would return."""
    frames = {i: [frame(text) for text in site] for i, site in enumerate(source.sites)}
    frames[None] = []
    traces = [[] for _ in range(max([h.device for h in source.histories], default=-1) + 1)]
    segments, free = [], device_free(source)
    for history in source.histories:
        mapped = Mapped(history, history.events)
        traces[history.device] = trace_entries(history, mapped, frames, begin_us, free)
        segments += [segment_object(s, history.device, frames, s.address in mapped.mapped) for s in mapped.segments]
    host_segments, host_traces = host_parts(source, frames, begin_us)
    return {"segments": segments, "device_traces": traces, "allocator_settings": settings(source),
            "external_annotations": [], "host_segments": host_segments, "host_traces": host_traces}


def write(source, file, begin_us):
    """Writes protocol 4, the newest that the viewer in the browser reads, without classes."""
    pickle.dump(snapshot(source, begin_us), file, protocol=4)
