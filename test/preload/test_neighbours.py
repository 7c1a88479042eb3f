"""Memory on demand: processes on one device ask each other for idle memory."""

import os
import signal
import time

import pytest

import sanitizer
from conftest import MIB, stop

BOTH = pytest.mark.parametrize("conf", ["expandable_segments:True", "expandable_segments:False"])


def shared(place, capacity, conf):
    return {"CACHALOT_SIM_SHARED": str(place.work / "memory"), "CACHALOT_SIM_CAPACITY": capacity,
            "CACHALOT_CONF": conf + ",idle_return_s:off"}


def holder(place, **environment):
    """Of 64 MiB it has 2 in use and 30 idle."""
    process = place.start("wait_for_input", **environment)
    assert process.stdout.readline() == "ready\n"
    return process


def counters(place):
    """Of all reports, by pid."""
    return {report["process"]["pid"]: report["devices"][0]["counters"] for report in place.reports()}


@BOTH
def test_a_neighbour_gives_idle_memory(place, conf):
    """44 MiB are wanted at once, and 32 are free."""
    environment = shared(place, "64M", conf)
    idle = holder(place, **environment)
    asker = place.run("starve", 22, 0, CACHALOT_EVENTS=1000, **environment)
    assert (asker.code, asker.value("count")) == (0, 22)
    idle.communicate("\n", timeout=20)
    given = counters(place)[idle.pid]
    assert 12 * MIB <= given["given_bytes"] <= 30 * MIB and given["asked_bytes"] == 0
    (report,) = [report for report in place.reports() if report["process"]["pid"] == asker_pid(place, idle)]
    asks = report["neighbour_asks"]
    assert sum(ask["asked_bytes"] for ask in asks) == report.counter("asked_bytes") > 0
    assert sum(ask["given_bytes"] for ask in asks) == given["given_bytes"]
    assert report.counter("asked_ns") >= sum(ask["waited_ns"] for ask in asks)
    rows = [row for row in report["events"]["rows"] if row["action"] == "ask"]
    assert [row["size_bytes"] for row in rows] == [ask["asked_bytes"] for ask in asks]
    assert all(row["duration_ns"] >= ask["waited_ns"] for row, ask in zip(rows, asks))
    (path,) = [path for path in place.work.glob("cachalot.*.json") if f".{asker_pid(place, idle)}." in path.name]
    shown = " ".join(place.cachalot("show", path).out.split())
    assert "Asked other processes for memory: " in shown and f"wait_for_input (pid {idle.pid}) gave " in shown
    assert place.cachalot("export", "--perfetto", "p", path).code == 0
    assert b"ask other processes for memory" in (place.work / "p").read_bytes()
    for ask in asks:
        assert (ask["processes"], ask["answered"]) == (1, 1) and 0 < ask["waited_ns"] < 10**9 * sanitizer.SLOWER
        assert [(giver["pid"], giver["program"]) for giver in ask["from"]] == [(idle.pid, "wait_for_input")] * bool(ask["given_bytes"])


def test_out_of_memory_names_the_holders(place):
    """Of six processes the largest four are named."""
    environment = shared(place, "256M", "expandable_segments:True")
    holders = [place.start("starve", 17 + 2 * (number == 3), 60, "hold", **environment) for number in range(5)]
    holders.append(holder(place, **environment))
    deadline = time.monotonic() + 20 * sanitizer.SLOWER
    while int.from_bytes((place.work / "memory").read_bytes()[:8], "little") < 206 * MIB:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    stop(holders[-1])
    asker = place.run("starve", 40, 0, **environment)
    assert asker.value("count") == 25
    report = place.only_report()
    event = report["oom_events"][-1]
    assert (event["neighbours"], event["neighbours_live_bytes"], event["neighbours_idle_bytes"]) == (6, 174 * MIB + 1024, 32 * MIB - 1024)
    assert [row["live_bytes"] for row in event["holders"]] == [38 * MIB] + [34 * MIB] * 3
    assert {row["program"] for row in event["holders"]} == {"starve"}
    assert event["holders"][0]["pid"] == holders[3].pid
    assert (f". Beside it starve (process {holders[3].pid}) held 38.0 MiB live and 0 bytes idle, starve" in event["explanation"]
            and ", and 2 more " in event["explanation"] and event["explanation"].endswith(" idle"))
    for process in holders:
        process.kill()
        process.wait()


def asker_pid(place, idle):
    (pid,) = [pid for pid in counters(place) if pid != idle.pid]
    return pid



def test_live_sums_that_fit_never_fail(place):
    """Four processes, of which one has 600 MiB live and three have 100, by turns, on 900 MiB."""
    environment = shared(place, "900M", "expandable_segments:True")
    running = [place.start("live_sums", seed, 100, 200, 600, 8, place.work / "lock", **environment) for seed in range(1, 5)]
    for process in running:
        out, err = process.communicate(timeout=100 * sanitizer.SLOWER)
        assert process.returncode == 0 and out.startswith("failed: 0\n"), (out, err)
    found = counters(place)
    assert len(found) == 4 and sum(of["given_bytes"] for of in found.values()) > 0


def test_a_stopped_neighbour_is_not_waited_for(place):
    environment = shared(place, "64M", "expandable_segments:True")
    idle = holder(place, **environment)
    idle.send_signal(signal.SIGSTOP)
    begin = time.monotonic()
    asker = place.run("starve", 22, 1, **environment)
    assert asker.code == 0 and asker.value("count") == 16
    assert time.monotonic() - begin < 4 * sanitizer.SLOWER
    idle.send_signal(signal.SIGCONT)
    asker = place.run("starve", 22, 0, **environment)
    assert asker.value("count") == 22
    idle.communicate("\n", timeout=20)
    assert idle.returncode == 0


def test_pages_are_hints(place):
    """What the pages of the same user say moves idle memory at most."""
    environment = shared(place, "64M", "expandable_segments:True")
    idle = holder(place, **environment)
    (path,) = place.pages.glob("*.page")
    whole = path.read_bytes()
    for number in range(300):
        fake = place.pages / f"{number + 1}.1.0.page"
        body = bytearray(whole)
        if number % 3 == 0:
            body = body[:number * 37 % len(body)]
        elif number % 3 == 1:
            body[8:4096] = os.urandom(4088)
        else:
            body[4096:8192] = b"\xff" * 4096  # a need of 2^64 - 1 bytes of device 2^64 - 1
        fake.write_bytes(body)
        fake.chmod(0o600)
    asker = place.run("starve", 22, 0, **environment)
    assert (asker.code, asker.err, asker.value("count")) == (0, "", 22)
    idle.communicate("\n", timeout=20)
    assert idle.returncode == 0
    assert counters(place)[idle.pid]["given_bytes"] <= 30 * MIB
