"""`cachalot run --fit SIZE`: did the program fit on a device of that size?"""

import json
import math
import os
import tempfile

from cachalot_command.common.tools import Failure, say
from cachalot_command.common.units import parse_size, size_text
from cachalot_command.reading.report import get, number
from cachalot_command.reading.replays import run
from cachalot_command.reading.traces import open_source
from cachalot_command.reading.trials import deadline_after, run_once
from cachalot_command.writing.words import oom_lines

MIB = 1 << 20
LEAST_MIB, MOST_MIB = 64, 1 << 30
WHOLE_MIB = 1 << 22  # more than any device has: nothing is hidden, and the report says what was left
LIMITS = ("NVML and nvidia-smi show the real device; managed memory and memory of graphs are not held to the size.")


def parse(text):
    """The size in MiB."""
    size = parse_size(text) // MIB
    if not LEAST_MIB <= size <= MOST_MIB:
        raise Failure(2, f"--fit={text}: give the memory of a device, at least {LEAST_MIB}MiB, or `search`")
    return size


def failures(reports):
    """(report, event) of requests that found no memory."""
    return [(report, event) for report in reports for event in report.list("oom_events") if get(event, "refused") is None]


def needed(size_mib, event):
    """The size in MiB that would have served the request, by the sums of that moment."""
    has = (number(event, "device_free_bytes") or 0) + (number(event, "reserved_bytes") or 0) - (number(event, "allocated_bytes") or 0)
    return size_mib + math.ceil(max(0, (number(event, "requested_bytes") or 0) - max(has, 0)) / MIB) + 2


def left_of(reports):
    """The least that was left of the size in any process, or None."""
    found = [number(report.root, "coverage", "fit_least_free_bytes") for report in reports]
    return min((left for left in found if left is not None), default=None)


def verdict(reports, size_mib):
    """(lines, whether it fitted)."""
    size, failed = size_text(size_mib * MIB), failures(reports)
    smaller = [r for r in reports for device in r.list("devices") if (number(device, "total_bytes") or 0) < size_mib * MIB]
    if smaller:
        return [f"fit {size}: not known, as the device is smaller itself"], False
    if failed:
        report, event = failed[0]
        lines = [f"fit {size}: no. {'. '.join(oom_lines({**event, 'would_serve': None}))}",
                 f"About {size_text(needed(size_mib, event) * MIB)} would have served that request ({report.program()}, "
                 f"pid {report.text('process', 'pid')})"]
    else:
        left = left_of(reports)
        spare = "with nothing allocated on the device" if left is None else f"with at least {size_text(left)} to spare"
        lines = [f"fit {size}: yes, {spare}"]
    return [*lines, LIMITS], not failed


class Search:
    """The least size on which a program fits: by replays of a recorded run, then by real runs."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        path, words, environment = program
        self.trace = os.path.join(folder, "trace")
        self.first = run_once(path, words, {**environment, b"CACHALOT_TRACE": os.fsencode(self.trace)},
                              f"device_size_mb:{WHOLE_MIB}", os.path.join(folder, "first"))
        reports = self.first.reports()
        left, devices = left_of(reports), [device for report in reports for device in report.list("devices")]
        if self.first.hung or failures(reports) or left is None or len(devices) != 1:
            raise Failure(3, "fit search: the run on the whole device must end, find its memory, and allocate on one device from one process")
        self.used = int(number(devices[0], "total_bytes") - left)  # by contexts and other processes too
        self.cached = int(number(reports[0].root, "totals", "peak_reserved_bytes") or 0)
        self.held = int(number(reports[0].root, "totals", "peak_allocated_bytes") or 0)

    def replay_fits(self, capacity):
        code, found = run(open_source(self.trace), ["--capacity", str(capacity)])
        if code:
            raise Failure(1, f"cachalot-replay ended with exit code {code}")
        return not json.loads(found)["totals"]["ooms"]

    def by_replay(self):
        """The least size in MiB, as replays of the recorded run have it."""
        low, high = self.held // MIB, -(-self.cached // MIB)  # low: no replay fits below; high: the recorded run did
        while low < high:
            middle = (low + high) // 2
            if middle and self.replay_fits(middle * MIB):
                high = middle
            else:
                low = middle + 1
        return max(LEAST_MIB, -(-(self.used - self.cached) // MIB) + high)

    def real_fits(self, size_mib):
        trial = run_once(*self.program, f"device_size_mb:{size_mib}", os.path.join(self.folder, str(size_mib)), deadline_after(self.first))
        fits = not failures(trial.reports()) and not trial.hung and trial.code == self.first.code
        say(f"cachalot: a run on {size_text(size_mib * MIB)}: {'fits' if fits else 'does not fit'}")
        return fits

    def least(self):
        """The least size in MiB on which a real run fits, to one part in a hundred."""
        size, whole = self.by_replay(), max(LEAST_MIB, -(-self.used // MIB))
        say(f"cachalot: replays of the recorded run fit from {size_text(size * MIB)} on")
        if self.real_fits(size):
            return size
        failed, size = size, max(size + 1, whole)
        while not self.real_fits(size):  # what the program does may depend on the size
            failed, size = size, size + size // 4
            if size > 4 * whole:
                raise Failure(1, f"fit search: no run fits up to {size_text(failed * MIB)}, though the whole device served it")
        while size - failed > max(1, size // 100):
            middle = (size + failed) // 2
            failed, size = (failed, middle) if self.real_fits(middle) else (middle, size)
        return size


def search(path, words, environment):
    """Prints the least size on which the program fits."""
    with tempfile.TemporaryDirectory(prefix="cachalot-fit-") as folder:
        found = Search((path, words, environment), folder)
        size = found.least()
        print(f"fits {size_text(size * MIB)} (device_size_mb:{size}), confirmed by a run; it held {size_text(found.held)} at most")
    say(f"cachalot: {LIMITS}")
    return 0
