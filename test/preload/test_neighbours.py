"""Memory on demand: processes on one device ask each other for idle memory."""

import fcntl
import os
import random
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
    with open(place.work / "lock", "w", encoding="ascii") as lock:  # nobody ends before all have begun
        fcntl.flock(lock, fcntl.LOCK_EX)
        running = [place.start("live_sums", seed, 100, 200, 600, 8, place.work / "lock", **environment) for seed in range(1, 5)]
        deadline = time.monotonic() + 30 * sanitizer.SLOWER
        while len(place.left_pages()) < 4:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    for process in running:
        assert_served(process)
    found = counters(place)
    assert len(found) == 4 and sum(of["given_bytes"] for of in found.values()) > 0


def assert_served(process):
    out, err = process.communicate(timeout=100 * sanitizer.SLOWER)
    assert process.returncode == 0 and out.startswith("failed: 0\n"), (out, err)


@sanitizer.unless_sanitized("slow givers answer after the deadline", ("tsan",))
@pytest.mark.parametrize("count", [2, 5, 16])
def test_programs_whose_live_sums_fit(place, count):
    """As natively, no request fails. CACHALOT_LIVE_SUMS: operations of all together."""
    operations = int(os.environ.get("CACHALOT_LIVE_SUMS", "12000"))
    chance = random.Random(count)
    low, high = 24 * chance.randrange(2, 5), 24 * chance.randrange(10, 20)
    environment = shared(place, f"{high + low * (count - 1)}M", "expandable_segments:True")
    running = [place.start("live_sums", chance.randrange(1 << 30), low, operations // count // 8, high, 4, place.work / "lock", **environment)
               for _ in range(count)]
    for process in running:
        assert_served(process)


def test_kills_and_stops_at_any_moment(place):
    """The others go on, nobody waits for ever, and no memory is lost. CACHALOT_MOMENTS: their number."""
    moments = int(os.environ.get("CACHALOT_MOMENTS", "30"))
    environment = shared(place, "400M", "expandable_segments:True")
    chance, stopped, made = random.Random(1), set(), 0
    running = []
    for _ in range(moments):
        while len(running) < 6:
            made += 1
            running.append(place.start("live_sums", made, 60, 100000, 60, 100, place.work / f"lock{made}", **environment))
        process = chance.choice(running)
        assert process.poll() is None, process.communicate()
        if process in stopped:
            stopped.remove(process)
            process.send_signal(signal.SIGCONT)
        elif chance.random() < 0.5:
            stopped.add(process)
            process.send_signal(signal.SIGSTOP)
        else:
            process.kill()
            process.communicate()
            running.remove(process)
            place.running.remove(process)
        time.sleep(chance.random() * 0.05)
    for process in running[1:]:
        process.kill()
        process.communicate()
        place.running.remove(process)
    running[0].send_signal(signal.SIGCONT)
    asker = place.run("starve", 165, 3, **environment)
    assert (asker.code, asker.err, asker.value("count")) == (0, "", 165)
    assert running[0].poll() is None


@pytest.mark.parametrize("name", ["cuMemUnmap", "cuMemRelease", "cuMemFree_v2", "cuCtxRecordEvent", "cuEventQuery", "cuEventCreate",
                                  "cuCtxPushCurrent_v2", "cuCtxGetCurrent", "cuThreadExchangeStreamCaptureMode", "cuMemGetInfo_v2"])
def test_each_driver_call_of_a_giver_fails(place, name):
    """Once, and for good. What it cannot give stays its own; the asker is answered all the same."""
    for conf in ("expandable_segments:True", "expandable_segments:False"):
        for number in ("1", "2", "3", "4", "1+", "3+"):
            environment = shared(place, "64M", conf)
            idle = place.start("wait_for_input", **environment, CACHALOT_SIM_FAIL=f"{name}:{number}:999")
            if idle.stdout.readline() != "ready\n":
                idle.communicate()
                continue  # a call of the program's own
            begin = time.monotonic()
            asker = place.run("starve", 22, 0, **environment)
            assert asker.code == 0 and asker.err == "" and 16 <= asker.value("count") <= 22
            assert time.monotonic() - begin < 5 * sanitizer.SLOWER
            idle.communicate("\n", timeout=20)
            (place.work / "memory").unlink()




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
    (report,) = [report for report in place.reports() if report["process"]["pid"] != idle.pid]
    assert report.warned("are another user's, damaged or too many") == 1


@pytest.mark.parametrize("plant", ["link", "pipe", "owner", "mode", "folder", "ten-thousand"])
def test_pages_of_others_are_not_waited_for(place, plant):
    environment = shared(place, "64M", "expandable_segments:True")
    idle = holder(place, **environment)
    (path,) = place.pages.glob("*.page")
    fake = place.pages / f"{os.getpid()}.1.0.page"
    if plant == "link":
        fake.symlink_to(path)
    elif plant == "pipe":
        os.mkfifo(fake, 0o600)
    elif plant == "folder":
        fake.mkdir()
    elif plant == "ten-thousand":
        for number in range(10000):
            (place.pages / f"{number + 10}.2.0.page").write_bytes(b"CACHALOT" + b"\xff" * 100)
    else:
        fake.write_bytes(path.read_bytes())
        fake.chmod(0o600 if plant == "owner" else 0o644)
    if plant == "owner":
        if os.getuid():
            pytest.skip("needs root, to act as another user")
        os.chown(fake, 65534, 65534)
    begin = time.monotonic()
    asker = place.run("starve", 22, 0, **environment)
    assert (asker.code, asker.err) == (0, "") and time.monotonic() - begin < 4 * sanitizer.SLOWER
    assert asker.value("count") == 22 or (plant == "ten-thousand" and asker.value("count") >= 16)
    assert place.only_report().warned("are another user's, damaged or too many") == 1
    idle.communicate("\n", timeout=20)
