"""Reports with events and segments, as a program would leave them: made by a small allocator of our own."""

import bisect
import copy
import random

MIB = 1 << 20


class Device:
    """Best fit in segments of 2 and 20 MiB; frees wait for a fence now and then."""

    def __init__(self, index, seed, base):
        self.index, self.random, self.next = index, random.Random(seed), base
        self.time, self.rows, self.segments = 1000000, [], {}
        self.holes, self.live, self.pending = [], {}, []
        self.now = [0, 0, 0]
        self.peak = [0, 0, 0]
        self.bins = {}

    def row(self, action, address, size, requested=None, **more):
        self.time += self.random.randrange(500, 20000)
        self.rows.append({"time_ns": self.time, "action": action, "device": self.index, "address": f"{address:#x}",
                          "size_bytes": size, "requested_bytes": requested, "thread": 4711,
                          "site": None, **more})

    def change(self, allocated, active, reserved):
        for i, delta in enumerate((allocated, active, reserved)):
            self.now[i] += delta
            self.peak[i] = max(self.peak[i], self.now[i])

    def grow(self, size):
        total = 2 * MIB if size <= MIB else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        address, self.next = self.next, self.next + 2 * total
        self.segments[address] = total
        self.change(0, 0, total)
        self.row("segment_alloc", address, total)
        return total, address

    def alloc(self, requested, site=None):
        size = -(-requested // 512) * 512
        small = size <= MIB
        at = bisect.bisect_left(self.holes, (small, size, 0))
        hole = self.holes.pop(at)[1:] if at < len(self.holes) and self.holes[at][0] == small else self.grow(size)
        self.change(size, size, 0)
        if hole[0] > size:
            bisect.insort(self.holes, (small, hole[0] - size, hole[1] + size))
        self.live[hole[1]] = (size, requested, site)
        self.bins[requested.bit_length()] = self.bins.get(requested.bit_length(), 0) + 1
        self.row("alloc", hole[1], size, requested, site=site)

    def free(self, address):
        size, requested, _ = self.live.pop(address)
        self.change(-size, 0, 0)
        self.row("free", address, size, requested)
        if self.random.random() < 0.1:
            self.pending.append((address, size, requested))
        else:
            self.reusable(address, size)

    def reusable(self, address, size):
        self.change(0, -size, 0)
        bisect.insort(self.holes, (size <= MIB, size, address))

    def complete(self, keep=0):
        while len(self.pending) > keep:
            address, size, requested = self.pending.pop(0)
            self.row("free_completed", address, size, requested)
            self.reusable(address, size)

    def work(self, count, sites):
        """About so many events: steps that take more and more, and give most of it back."""
        choice = self.random
        while len(self.rows) < count:
            for _ in range(choice.randrange(10, 60)):
                self.alloc(choice.choice((1000, 4096, 100000, 600000, 3 * MIB, 5 * MIB + 17, 9 * MIB, 48 * MIB)),
                           choice.randrange(sites) if sites else None)
            if choice.random() < 0.1:
                self.row("fence_wait", 0, 0, duration_ns=50000)
            for address in choice.sample(sorted(self.live), int(len(self.live) * choice.uniform(0.4, 0.95))):
                self.free(address)
            self.complete(keep=2)

    def out_of_memory(self, asked):
        self.row("oom", 0, asked, asked)
        return {"number": 1, "time_ns": self.time, "device": self.index, "requested_bytes": asked,
                "allocated_bytes": self.now[0], "active_bytes": self.now[1], "reserved_bytes": self.now[2],
                "reusable_bytes": self.now[2] - self.now[1], "largest_allocatable_bytes": 48 * MIB,
                "device_free_bytes": 7 * MIB, "memory_limit_bytes": 0, "native_would_fit": True,
                "asked_bytes": asked, "site": 0, "would_serve": ["expandable_segments:True"],
                "explanation": "64 MiB were asked for, and no piece of the idle memory was that large."}

    def blocks(self, begin, total):
        """The segment's blocks in address order."""
        live = {a: (s, r, "allocated", i) for a, (s, r, i) in self.live.items()}
        live.update({a: (s, r, "pending", None) for a, s, r in self.pending})
        out, at = [], begin
        for address in sorted(a for a in live if begin <= a < begin + total):
            size, requested, state, site = live[address]
            if address > at:
                out.append(self.block(at, address - at, 0, "reusable", None))
            out.append(self.block(address, size, requested, state, site))
            at = address + size
        if at < begin + total:
            out.append(self.block(at, begin + total - at, 0, "reusable", None))
        return out

    @staticmethod
    def block(address, size, requested, state, site):
        made = {"address": f"{address:#x}", "size_bytes": size, "requested_bytes": requested, "state": state}
        return made if site is None else {**made, "site": site}

    def segment_list(self):
        lists = [(a, t, self.blocks(a, t)) for a, t in sorted(self.segments.items())]
        return [{"address": f"{a:#x}", "total_bytes": t, "pool": "small_pool" if t == 2 * MIB else "large_pool",
                 "allocated_bytes": sum(b["size_bytes"] for b in blocks if b["state"] == "allocated"),
                 "blocks": blocks} for a, t, blocks in lists]


def fill_device(report_device, made):
    stats = report_device["statistics"]
    for i, name in enumerate(("allocated_bytes", "active_bytes", "reserved_bytes")):
        stats[name]["all"].update(current=made.now[i], peak=made.peak[i])
    stats["allocation"]["all"]["allocated"] = sum(made.bins.values())
    report_device["counters"]["num_hits"] = sum(made.bins.values()) - len(made.segments)
    report_device["counters"]["num_ooms"] = 1
    reusable = made.peak[2] - made.peak[1]
    report_device["at_peak_reserved"].update(
        utilization_ratio=made.peak[0] / made.peak[2], reserved_bytes=made.peak[2], allocated_bytes=made.peak[0],
        active_bytes=made.peak[1], requested_bytes=int(made.peak[1] * 0.97), reusable_bytes=reusable,
        inactive_split_bytes=reusable // 2, largest_allocatable_bytes=reusable // 5, external_ratio=0.8)
    report_device["size_histogram"] = [
        {"up_to_bytes": (1 << bits) - 1, "requests": count, "live": count // 9, "live_bytes": count // 9 << bits}
        for bits, count in sorted(made.bins.items())]
    report_device["segments"] = made.segment_list()


def report_with_history(model, count=2000, seed=1, lost=0, sites=5, devices=1):
    """The model report with about `count` events per device; the oldest `lost` of them dropped."""
    report = copy.deepcopy(model)
    report["process"].update(argv=["python3", "train.py", "--epochs", "3"], exe="/usr/bin/python3.12")
    report["sites"] = [{"frames": [f"train.py:{31 + i} step", "libtorch.so!at::empty+0x12"]} for i in range(sites)]
    report["oom_events"], rows, template = [], [], report["devices"][0]
    report["devices"] = [copy.deepcopy(template) for _ in range(devices)]
    for index, device in enumerate(report["devices"]):
        device["device"] = index
        made = Device(index, seed + index, 0x7f0000000000 + (index << 40))
        made.work(count // 2, sites)
        report["oom_events"].append(made.out_of_memory(64 * MIB + 5))
        made.work(count, sites)
        fill_device(device, made)
        rows += made.rows
    report["totals"].update(ooms=devices, requests=sum(d["statistics"]["allocation"]["all"]["allocated"]
                                                       for d in report["devices"]))
    for kind in ("allocated_bytes", "active_bytes", "reserved_bytes"):
        report["totals"][f"peak_{kind}"] = sum(d["statistics"][kind]["all"]["peak"] for d in report["devices"])
    rows.sort(key=lambda row: row["time_ns"])
    report["events"] = {"capacity": len(rows) - lost, "lost": lost, "rows": rows[lost:]}
    report["time"]["uptime_ns"] = rows[-1]["time_ns"] + 1000
    return report


def report_with_mapped(model, lost=0, more=()):
    """Of 8 pieces at 0 to 16 MiB three are moved to 16 MiB, and two go back: without a word where they lay then."""
    report, base = report_with_history(model, 10), 1 << 46
    story = [*(("segment_map", i, 2) for i in (0, 2, 4, 6)), ("alloc", 0, 8), *(("segment_map", i, 2) for i in (8, 10, 12, 14)), ("alloc", 8, 8),
             ("free", 0, 8), ("alloc", 16, 6), ("free", 8, 8), ("segment_unmap", None, 2), ("segment_unmap", None, 2)]
    story[5:5] = more
    rows = [{"time_ns": 1000 * i, "action": action, "device": 0, "address": "0x0" if at is None else f"{base + at * MIB:#x}",
             "size_bytes": size * MIB, "requested_bytes": None, "thread": 1, "site": None} for i, (action, at, size) in enumerate(story)]
    blocks = [{"address": f"{base + at * MIB:#x}", "size_bytes": 6 * MIB, "requested_bytes": 6 * MIB * held,
               "state": "allocated" if held else "reusable"} for at, held in ((10, 0), (16, 1))]
    report["devices"][0]["segments"] = [{"address": blocks[0]["address"], "total_bytes": 12 * MIB, "pool": "large_pool",
                                         "allocated_bytes": 6 * MIB, "blocks": blocks}]
    for level, size in (("allocated", 6), ("active", 6), ("reserved", 12)):
        report["devices"][0]["statistics"][f"{level}_bytes"]["all"].update(current=size * MIB, peak=16 * MIB)
    report.update(oom_events=[], events={"capacity": 16, "lost": lost, "rows": rows[lost:]})
    return report


def main():
    """history_of.py MODEL.json COUNT LOST DEVICES: such a report, on stdout."""
    import json
    import sys
    with open(sys.argv[1], encoding="utf-8") as file:
        model = json.load(file)
    count, lost, devices = map(int, sys.argv[2:])
    json.dump(report_with_history(model, count, lost=lost, devices=devices), sys.stdout)


if __name__ == "__main__":
    main()
