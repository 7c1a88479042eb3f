"""Much work: our own memory stays flat, the counters are what a walk over all blocks finds, and many processes
leave nothing behind. By hand: CACHALOT_SOAK=1000000000 (operations), CACHALOT_LIVE=1100000 (blocks), CACHALOT_LIVES=10000
(processes)."""

import json
import os

import pytest

from conftest import MIB, Report

SHARE = int(os.environ.get("CACHALOT_STRESS_SHARE", "1"))  # builds that check all books at each step do less
SOAK = int(os.environ.get("CACHALOT_SOAK", "2000000")) // SHARE
LIVES = int(os.environ.get("CACHALOT_LIVES", "200" if SHARE == 1 else "50"))
LIVE = int(os.environ.get("CACHALOT_LIVE", "200000"))  # about as many blocks at once
# operations, threads, devices, blocks that each thread holds, largest block
LOADS = {"one thread": (SOAK, 1, 1, 1000, 4 * MIB), "four threads": (SOAK, 4, 2, 1000, 4 * MIB),
         "256 threads": (SOAK // 4, 256, 1, 20, 64 << 10), "64 devices": (SOAK // 4, 64, 64, 50, MIB),
         "many live blocks": (6 * LIVE, 1, 1, LIVE, 1 << 10)}


def compare(report, done, live, live_bytes):
    """The program's own figures, the counters, and a walk over all blocks."""
    totals = report.totals
    assert totals["requests"] - totals["frees"] == live
    assert totals["requests"] + totals["frees"] == done
    assert totals["double_frees"] == totals["ooms"] == totals["warnings"] == 0
    active = blocks = reserved = 0
    for device in report["devices"]:
        for segment in device["segments"]:
            reserved += segment["total_bytes"]
            assert sum(block["size_bytes"] for block in segment["blocks"]) == segment["total_bytes"]
            allocated = [block["size_bytes"] for block in segment["blocks"] if block["state"] in ("allocated", "active")]
            active += sum(allocated)
            blocks += len(allocated)
    assert (blocks, active, reserved) == (live, totals["allocated_bytes"], totals["reserved_bytes"])
    assert active >= live_bytes


@pytest.mark.parametrize("what", LOADS)
def test_soak(place, what):
    operations, threads, devices, *rest = LOADS[what]
    if SHARE > 1 and rest[0] > 1000:
        pytest.skip("this kind of build checks all blocks after each step, which takes too long")
    # Each device has addresses for eight times its memory; under the thread sanitizer a process has but 1.5 TiB of them.
    process = place.start("soak", operations, threads, devices, *rest, CACHALOT_SIM_DEVICES=devices,
                          CACHALOT_SIM_CAPACITY=f"{min(64, 128 // devices)}G")
    resident = {}
    for line in process.stdout:
        kind, *words = line.split()
        if kind == "held:":
            break
        resident[int(words[0])] = int(words[1])
    done, live, live_bytes = (int(word) for word in words)
    answer = place.cachalot("dump", process.pid, "--segments", "--timeout", 50)  # a list of a million on a busy machine
    assert answer.code == 0, answer.err
    compare(Report(json.loads(open(answer.out.strip()).read())), done, live, live_bytes)
    assert process.communicate("\n") == ("", "") and process.returncode == 0
    last = place.reports()[-1]
    assert last.totals["leaked_blocks"] == 0
    if devices == 1 and threads == 1 and rest[0] <= 1000:  # steady from early on
        assert resident[10] - resident[5] < 4 * MIB + resident[5] / 20, resident


def ours_in_memory():
    """How much is named after us there. Tests beside us have some folders."""
    return sum("cachalot" in name for name in os.listdir("/dev/shm"))


def test_short_processes_leave_nothing_behind(place):
    before = ours_in_memory()
    done = place.run("short_lives", LIVES, timeout=3600, CACHALOT_OUTPUT="r.json")
    assert (done.code, done.err) == (0, "")
    assert all(path.match("r*.json") for path in place.work.iterdir()) and len(list(place.work.iterdir())) == int(LIVES)
    assert place.left_pages() == []
    assert ours_in_memory() <= before + 20  # of each process one would be more
