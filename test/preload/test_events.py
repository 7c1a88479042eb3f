"""The timeline: the ring of events beside the page (CACHALOT_EVENTS), live, at exit, and after a kill."""

import os
import signal
import subprocess

import pytest

from conftest import MIB, load
from test_requests import ready


def rows_of(report, *actions):
    return [row for row in report["events"]["rows"] if not actions or row["action"] in actions]


def brief(report):
    return [(row["action"], row["size_bytes"]) for row in rows_of(report)]


def overlapping(begin, size, blocks):
    return next((other for other, taken in blocks.items() if begin < other + taken and other < begin + size), None)


def check_story(rows):
    """Blocks lie in segments, no two at one place at a time. Returns what lives at the end: {address: size}."""
    live, pending, segments, last = {}, {}, {}, 0
    for row in rows:
        assert row["time_ns"] >= last
        last = row["time_ns"]
        begin, size = int(row["address"], 16), row["size_bytes"]
        if row["action"] == "segment_alloc":
            segments[begin] = size
        elif row["action"] == "segment_free":
            assert segments.pop(begin) == size
            assert not [a for a in live if begin <= a < begin + size]
        elif row["action"] == "alloc":
            assert any(s <= begin and begin + size <= s + n for s, n in segments.items())
            assert overlapping(begin, size, {**live, **pending} if pending else live) is None
            assert 0 < row["requested_bytes"] <= size
            live[begin] = size
        elif row["action"] == "free":
            assert live.pop(begin) == size
            pending[begin] = size
        elif row["action"] == "free_completed":
            assert pending.pop(begin) == size
        if row["action"] == "free" and row["completed"]:
            del pending[begin]
    return live


def completed(rows):
    """The rows, where a free that is followed by no `free_completed` of its own was complete at once."""
    later = set()
    for row in reversed(rows):
        if row["action"] == "free_completed":
            later.add(row["address"])
        elif row["action"] == "free":
            row["completed"] = row["address"] not in later
            later.discard(row["address"])
    return rows


def story(report):
    return completed(rows_of(report))


WAITING = [("segment_alloc", 2 * MIB), ("alloc", 1024), ("segment_alloc", 30 * MIB),
           ("alloc", 30 * MIB), ("free", 30 * MIB)]


def test_off_by_default(place):
    report = place.report("allocate_130")
    assert "events" not in report and report["devices"][0]["segments"] is None


def test_while_it_runs_and_at_the_end(place):
    process = ready(place, "wait_for_input", CACHALOT_EVENTS="100")
    report = load(place.cachalot("dump", process.pid).out.strip())
    assert brief(report) == WAITING
    assert {row["thread"] for row in rows_of(report)} == {process.pid}
    assert 0 < rows_of(report)[-1]["time_ns"] <= report["time"]["uptime_ns"]
    assert [s["total_bytes"] for s in report["devices"][0]["segments"]] == [2 * MIB, 30 * MIB]
    place.cachalot("empty-cache", process.pid)
    process.communicate("\n")
    report = place.reports()[-1]
    assert (report["kind"], report["events"]["capacity"], report["events"]["lost"]) == ("exit", 128, 0)
    assert brief(report) == WAITING + [("segment_free", 30 * MIB), ("free", 1024)]
    assert check_story(story(report)) == {}


def test_a_dump_of_segments_alone(place):
    process = ready(place, "wait_for_input")
    report = load(place.cachalot("dump", "--segments", process.pid).out.strip())
    assert len(report["devices"][0]["segments"]) == 2 and "events" not in report


def test_mapped_memory_grows_and_shrinks(place):
    """The events tell what was reserved at any time, also where chunks come and go."""
    report = place.report("mapped_stress", 2, 1, 1500, CACHALOT_EVENTS="524288", CACHALOT_SIM_CAPACITY="320M", CACHALOT_CONF="expandable_segments:True")
    now, most = 0, 0
    for row in rows_of(report, "segment_alloc", "segment_free", "segment_map", "segment_unmap"):
        now += row["size_bytes"] if row["action"] in ("segment_alloc", "segment_map") else -row["size_bytes"]
        most = max(most, now)
    assert report["events"]["lost"] == 0 and len(rows_of(report, "segment_unmap")) > 10
    assert (now, most) == (report.statistic("reserved_bytes"), report.statistic("reserved_bytes", "peak"))


def test_after_a_kill(place):
    process = ready(place, "wait_for_input", CACHALOT_EVENTS="1000")
    uptime = load(place.cachalot("dump", process.pid).out.strip())["time"]["uptime_ns"]
    process.kill()
    process.wait()
    (report,) = place.harvest()
    assert brief(report) == WAITING
    assert 0 < rows_of(report)[0]["time_ns"] < rows_of(report)[-1]["time_ns"] < uptime


@pytest.mark.parametrize("mode", ["async", "fence", "strict"])
def test_threads(place, mode):
    report = place.report("threads", CACHALOT_EVENTS="524288", CACHALOT_CONF=f"free_mode:{mode}")
    assert report["events"]["lost"] == 0 and len({row["thread"] for row in rows_of(report)}) == 9
    assert check_story(story(report)) == {}
    for action, counter in (("segment_alloc", "num_device_alloc"), ("fence_wait", "num_fence_waits")):
        assert len(rows_of(report, action)) == report.counter(counter), action
    late = report.counter("num_fence_frees") + report.counter("num_wait_frees")
    assert len(rows_of(report, "free_completed")) == late
    assert sum(row["duration_ns"] for row in rows_of(report, "fence_wait")) == report.counter("fence_wait_ns")
    assert len(rows_of(report, "alloc")) == len(rows_of(report, "free")) == 16000
    assert mode != "fence" or rows_of(report, "free_completed")


def test_the_ring_is_bounded(place):
    report = place.report("threads", CACHALOT_EVENTS="1")
    assert report["events"]["capacity"] == 16 == len(rows_of(report))
    assert report["events"]["lost"] >= 31984
    assert [row["action"] for row in rows_of(report)] == ["free"] * 16


def test_while_it_is_written(place):
    """A small ring that many threads fill is read again and again: every row is a whole one."""
    process = ready(place, CACHALOT_EVENTS="64")
    for _ in range(6):
        report = load(place.cachalot("dump", process.pid).out.strip())
        assert 0 < len(rows_of(report)) <= 64
        assert {row["action"] for row in rows_of(report)} <= {"alloc", "free", "segment_alloc", "free_completed"}
        assert all(row["size_bytes"] % 512 == 0 and row["requested_bytes"] <= 70100
                   for row in rows_of(report, "alloc", "free"))
    process.stdin.close()
    process.stdin = None
    process.communicate()


def test_out_of_memory(place):
    done = place.run("out_of_memory", "malloc", CACHALOT_EVENTS="100", CACHALOT_SIM_CAPACITY="64M",
                     CACHALOT_CONF="memory_limit_mb:40")
    assert done.code == 99
    (report,) = place.harvest()
    (row,) = rows_of(report, "oom")
    assert (row["size_bytes"], row["requested_bytes"]) == (16 * MIB, 16 * MIB)


def test_contexts_that_end(place):
    report = place.report("context_end", "destroy", CACHALOT_EVENTS="1000")
    check_story(story(report))


@pytest.mark.parametrize("value", ["many", "-1", "600000", "99999999999999999999", " 5", "5k"])
def test_what_is_no_number(place, value):
    report = place.report("allocate_130", CACHALOT_EVENTS=value)
    assert report.warned("CACHALOT_EVENTS is not understood") == 1 and "events" not in report


@pytest.mark.parametrize("value", ["", "0"])
def test_none(place, value):
    report = place.report("allocate_130", CACHALOT_EVENTS=value)
    assert report["warnings"] == [] and "events" not in report


def test_no_room_for_them(place):
    """A small file system holds the page, but not the events."""
    small = place.work / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M,mode=700", "tmpfs", small], check=False,
                      stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        report = place.report("allocate_130", CACHALOT_EVENTS="100000", CACHALOT_PAGE_DIR=small)
        assert report.warned("no room for events") == 1 and "events" not in report
        assert report.warned("the page has no file") == 0
        assert os.listdir(small) == []
    finally:
        subprocess.run(["umount", small], check=True)


def test_top_reads_no_events(place):
    process = ready(place, "wait_for_input", CACHALOT_EVENTS="500000")
    done = place.cachalot("top", "--once", "--json")
    assert (done.code, done.err) == (0, "") and str(process.pid) in done.out
    process.send_signal(signal.SIGKILL)
