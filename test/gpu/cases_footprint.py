"""Device memory: PyTorch's own expandable segments against none of its cache and us in front, process by process."""

import ctypes
import os
import statistics
import threading

from cases_timing import command_of, step
from kit import MIB, Failed, Skip

MOST_MEMORY = 1.00
EXPANDABLE = "expandable_segments:True"


class Memory(ctypes.Structure):
    """nvmlMemory_t."""
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Sampler:
    """The most memory in use on a device, of all processes, above what was used before; by NVML, every 5 ms."""

    def __init__(self):
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise Skip(f"no NVML: {error}") from error
        first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        self.device = ctypes.c_void_p()
        if self.nvml.nvmlInit_v2():
            raise Skip("NVML does not start")
        named = self.nvml.nvmlDeviceGetHandleByIndex_v2(int(first), ctypes.byref(self.device)) if first.isdigit() \
            else self.nvml.nvmlDeviceGetHandleByUUID(first.encode(), ctypes.byref(self.device))
        if named:
            raise Skip(f"NVML knows no device {first}: {named}")

    def used(self):
        memory = Memory()
        code = self.nvml.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory))
        if code:
            raise Failed(f"nvmlDeviceGetMemoryInfo: {code}")
        return memory.used

    def during(self, work):
        """(what `work` returns, bytes at the peak)."""
        before, peak, ended = self.used(), [0], threading.Event()

        def sample():
            while not ended.wait(0.005):
                peak[0] = max(peak[0], self.used())

        thread = threading.Thread(target=sample)
        thread.start()
        try:
            return work(), peak[0] - before
        finally:
            ended.set()
            thread.join()


def footprint(kit):
    """Each workload in pairs, the order changing: ratios of peaks, printed as they come. Step times of separate processes scatter
    by a third on a shared host: `pairs --own-conf` has them."""
    sampler = Sampler()
    ways = {"theirs": kit.native(PYTORCH_CUDA_ALLOC_CONF=EXPANDABLE, PYTORCH_ALLOC_CONF=EXPANDABLE),
            "ours": kit.front(conf="expandable_segments:auto")}
    for name in kit.options.work:
        times, peaks = [], []
        try:
            command = command_of(kit, name)
            for number in range(max(3, kit.options.repeat)):
                found = {}
                for way in list(ways)[::-1 if number % 2 else 1]:
                    found[way], bytes_used = sampler.during(lambda e=ways[way]: step(kit, command, e))
                    found[way] += (bytes_used,)
                ours, theirs = found["ours"], found["theirs"]
                times.append(ours[0] / theirs[0])
                peaks.append(ours[3] / theirs[3])
                kit.note(f"{name}: pair {number}", f"{ours[0]:.2f} ms of {theirs[0]:.2f}, {ours[3] / MIB:.0f} MiB of {theirs[3] / MIB:.0f}; "
                         f"reserved {ours[1]:.0f} of {theirs[1]:.0f}")
        except (Skip, Failed) as reason:
            kit.check(f"{name}: footprint", False, reason)
            continue
        way = ours[2].exit.report["config"]["expandable_segments"]["value"]
        kit.note(f"{name}: step time of PyTorch's expandable segments", " ".join(f"{ratio:.3f}" for ratio in times) + f"; {way}")
        kit.check(f"{name}: peak device memory of theirs, by NVML", statistics.median(peaks) <= MOST_MEMORY,
                  " ".join(f"{ratio:.3f}" for ratio in peaks) + f"; {ours[3] / MIB:.0f} MiB of {theirs[3] / MIB:.0f}")
