"""What pytorch.org/memory_viz does with a snapshot (torch/utils/viz/MemoryViz.js): it goes back from the end, event by event."""

import bisect

LIVE = ("active_allocated", "active_pending_free")


class Viewer:
    """Segments and blocks of a device. Asserts what would be a TypeError there."""

    def __init__(self, snapshot, device):
        segments = [s for s in snapshot["segments"] if s["device"] == device]
        self.segments = sorted([s["address"], s["total_size"]] for s in segments)
        self.blocks = {b["address"]: b["size"] for s in segments for b in s["blocks"] if b["state"] in LIVE}

    def appear(self, address, size, joins):
        bisect.insort(self.segments, [address, size])
        place = self.segments.index([address, size])
        for i in (place, place - 1) if joins else ():  # with the next one, and then with the one before
            if 0 <= i < len(self.segments) - 1 and sum(self.segments[i]) == self.segments[i + 1][0]:
                self.segments[i][1] += self.segments.pop(i + 1)[1]

    def vanish(self, address, size, joined):
        if not joined:
            (place,) = [i for i, s in enumerate(self.segments) if s[0] == address]
            assert self.segments.pop(place)[1] == size
            return
        (place,) = [i for i, s in enumerate(self.segments) if s[0] <= address and address + size <= sum(s)]
        begin, end = self.segments[place][0], sum(self.segments[place])
        rest = [[begin, address - begin], [address + size, end - address - size]]
        self.segments[place:place + 1] = [r for r in rest if r[1]]

    def undo(self, event):
        action, address, size = event["action"], event.get("addr"), event["size"]
        if action == "alloc":
            self.blocks.pop(address)
        elif action == "free_completed":
            self.blocks[address] = size
        elif action == "free_requested":
            assert address in self.blocks
        elif action in ("segment_free", "segment_unmap"):
            self.appear(address, size, action == "segment_unmap")
        elif action in ("segment_alloc", "segment_map"):
            self.vanish(address, size, action == "segment_map")

    def check(self):
        """Each block lies in a segment, and none of these in another."""
        begins = [s[0] for s in self.segments]
        assert begins == sorted(begins) and all(sum(a) <= b[0] for a, b in zip(self.segments, self.segments[1:]))
        for address, size in self.blocks.items():
            place = bisect.bisect_right(begins, address) - 1
            assert place >= 0 and address + size <= sum(self.segments[place]), f"{address:#x} lies in no segment"


def reserved_over_time(snapshot, device):
    """Bytes of all segments before each event and at the end, as the viewer goes back; at every one it finds what it looks for."""
    viewer, out = Viewer(snapshot, device), []
    for event in [*reversed(snapshot["device_traces"][device]), None]:
        viewer.check()
        out.append(sum(s[1] for s in viewer.segments))
        if event:
            viewer.undo(event)
    return out[::-1]
