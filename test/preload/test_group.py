"""The limit of a group: what its processes have of a device together, their books, and who may write there."""

import contextlib
import fcntl
import os
import random
import shutil
import signal
import struct
import time

import pytest

import sanitizer
from conftest import MIB, stop
from test_neighbours import BOTH, holder

CAPACITY = 8 << 30
BOOKS = 16008  # bytes; a magic number and lines


def limited(place, limit, conf="expandable_segments:True", **more):
    return {"CACHALOT_SIM_SHARED": str(place.work / "memory"), "CACHALOT_SIM_CAPACITY": CAPACITY, "CACHALOT_GROUP": "a",
            "CACHALOT_CONF": f"{conf},idle_return_s:off,group_limit_mb:{limit}", **more}


def taken(place):
    """By all processes, at this moment and at most."""
    data = (place.work / "memory").read_bytes().ljust(1024, b"\0")
    return struct.unpack_from("q", data)[0], struct.unpack_from("q", data, 64 * 8)[0]


def books(place):
    (path,) = place.pages.glob("*.group")
    return path


def wait_for(place, bytes_taken):
    deadline = time.monotonic() + 20 * sanitizer.SLOWER
    while not (place.work / "memory").exists() or taken(place)[0] < bytes_taken:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@BOTH
def test_processes_at_once_keep_the_limit(place, conf):
    """32 processes allocate up to 64 MiB each within 512 MiB. Afterwards the books are even."""
    environment = limited(place, 512, conf)
    with contextlib.ExitStack() as locks:  # nobody ends before all have begun
        running = []
        for seed in range(1, 33):
            lock = locks.enter_context(open(place.work / f"lock{seed}", "w", encoding="ascii"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            running.append(place.start("live_sums", seed, 64, 300, 64, 1, lock.name, **environment))
        deadline = time.monotonic() + 30 * sanitizer.SLOWER
        while len(place.left_pages()) < 32:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    for process in running:
        out, err = process.communicate(timeout=100 * sanitizer.SLOWER)
        assert process.returncode == 0 and err == "" and out.startswith("failed: "), (out, err)
    assert 256 * MIB < taken(place)[1] <= 512 * MIB
    reports = place.reports()
    assert [report.warnings for report in reports] == [{}] * 32
    assert {report.counter("group_limit_bytes") for report in reports} == {512 * MIB}
    asker = place.run("starve", 256, 0, **environment)
    assert asker.value("count") == 256


@BOTH
def test_idle_memory_of_the_group_comes_first(place, conf):
    """Of 64 MiB one process has 2 live and 30 idle. Another one gets the rest, and not of other groups."""
    environment = limited(place, 64, conf)
    other = holder(place, **limited(place, 64, conf, CACHALOT_GROUP="b"))
    idle = holder(place, **environment)
    asker = place.run("starve", 40, 0, **environment)
    assert (asker.code, asker.value("count")) == (0, 31)
    for process in (idle, other):
        process.communicate("\n", timeout=20)
    given = {report["process"]["pid"]: report.counter("given_bytes") for report in place.reports()}
    assert given[idle.pid] == 30 * MIB and given[other.pid] == 0


def test_killed_members_shares_are_free_at_once(place):
    environment = limited(place, 64)
    live = [place.start("starve", 10, 60, "hold", **environment) for _ in range(2)]
    wait_for(place, 40 * MIB)
    assert place.run("starve", 32, 0, **environment).value("count") == 12
    (report,) = place.reports()
    event = report["oom_events"][-1]
    assert (event["group_limit_bytes"], event["group_bytes"]) == (64 * MIB, 64 * MIB)
    assert ": the processes of its group have 64.0 MiB of their limit of 64.0 MiB. Beside it starve (process " in event["explanation"]
    for process in live:
        process.kill()
        process.wait()
    assert place.run("starve", 32, 0, **environment).value("count") == 32
    assert [report["warnings"] for report in place.reports()] == [[], []]


def test_the_free_memory_is_the_groups(place):
    environment = limited(place, 256)
    alone = place.run("memory_info", **environment).out
    assert "at first: 256 of 8192 MiB" in alone and "freed one: 256 of" in alone
    live = place.start("starve", 20, 60, "hold", **environment)
    wait_for(place, 40 * MIB)
    beside = place.run("memory_info", **environment).out
    assert "at first: 216 of 8192 MiB" in beside
    live.kill()
    live.wait()
    assert place.run("memory_info", **environment).out == alone


def test_a_stopped_member_delays_nobody(place):
    environment = limited(place, 64)
    idle = holder(place, **environment)
    stop(idle)
    begin = time.monotonic()
    assert place.run("starve", 22, 0, **environment).value("count") == 16
    assert time.monotonic() - begin < 4 * sanitizer.SLOWER
    idle.send_signal(signal.SIGCONT)
    assert place.run("starve", 22, 0, **environment).value("count") == 22
    idle.communicate("\n", timeout=20)


@pytest.mark.parametrize("kill", [0, 1])
def test_members_that_come_and_go(place, kill):
    """Kills in any moment leave the limit kept, and books that the living can use."""
    rounds = int(os.environ.get("CACHALOT_MOMENTS", "16"))
    environment = limited(place, 128)
    chance, running = random.Random(kill), []
    for seed in range(1, rounds + 1):
        running.append(place.start("live_sums", seed, 64, 4000, 64, 1, place.work / f"lock{seed}", **environment))
        if len(running) == 4:
            process = running.pop(chance.randrange(4))
            if kill:
                time.sleep(chance.random() * 0.1)
                process.kill()
            process.communicate(timeout=100 * sanitizer.SLOWER)
            place.running.remove(process)
    for process in running:
        out, err = process.communicate(timeout=100 * sanitizer.SLOWER)
        assert process.returncode == 0, (out, err)
    assert all(report["warnings"] == [] for report in place.reports())
    assert place.run("starve", 64, 0, **environment).value("count") == 64
    assert taken(place)[1] <= (512 if kill else 128) * MIB  # what a zombie had is free for the group, and not yet in the simulation


def aside(place, reason):
    report = place.only_report()
    assert report.warned("the limit of the group does not hold here: " + reason) == 1, report.warnings
    assert report["config"]["group_limit_mb"]["value"] == "64: off"
    assert report.counter("group_limit_bytes") == 0


@pytest.mark.parametrize("plant, reason", [
    (lambda path: path.write_bytes(b"x" * BOOKS), "its books are damaged"),
    (lambda path: path.write_bytes(b"x"), "its books are damaged"),
    (lambda path: path.symlink_to(path.parent / "elsewhere"), "its books cannot be opened"),
    (lambda path: (path.touch(), os.link(path, path.parent / "second")), "its books are another user's, or open to others"),
    (lambda path: (path.touch(), path.chmod(0o666)), "its books are another user's, or open to others"),
    (lambda path: (path.touch(), os.chown(path, 65534, 65534)), "its books are another user's, or open to others"),
    (lambda path: path.mkdir(), "its books cannot be opened"),
    (lambda path: os.mkfifo(path, 0o600), "its books are another user's, or open to others"),
], ids=["bytes", "size", "link", "second-name", "mode", "owner", "folder", "pipe"])
def test_planted_books_are_not_used(place, plant, reason):
    environment = limited(place, 64)
    assert place.run("starve", 1, 0, **environment).code == 0
    path = books(place)
    path.unlink()
    for report in place.work.glob("cachalot.*.json"):
        report.unlink()
    try:
        plant(path)
    except PermissionError:
        pytest.skip("needs root")
    if path.is_file() and path.stat().st_size:
        path.chmod(0o600)
    before = path.lstat().st_size
    asker = place.run("starve", 40, 0, **environment)
    assert (asker.code, asker.err, asker.value("count")) == (0, "", 40)
    assert path.lstat().st_size == before and not (place.pages / "elsewhere").exists()
    aside(place, reason)


@pytest.mark.parametrize("what, reason", [("numbers", "its books are damaged"), ("removed", "its books were removed or replaced")])
def test_books_that_are_changed_meanwhile(place, what, reason):
    """The same user may do that. The limit ends for this process, which says so."""
    environment = limited(place, 64)
    live = place.start("starve", 64, 4 * sanitizer.SLOWER, "hold", **environment)
    wait_for(place, 64 * MIB)
    if what == "removed":
        books(place).unlink()
    else:
        with open(books(place), "r+b") as file:
            file.write(b"\xff" * 8)  # a line of nobody would be taken back as a dead member's
    out, err = live.communicate(timeout=60)
    assert (live.returncode, out, err) == (0, "count: 64\n", "")
    aside(place, reason)


def test_without_room_there_is_no_group(place):
    """A file system in which the page finds room, and the books do not."""
    idle = holder(place)
    (page,) = place.left_pages()
    small = place.work / "small"
    small.mkdir()
    size = -(-page.stat().st_size // 4096) * 4096 + 8192
    idle.kill()
    if place.run(shutil.which("mount") or "/bin/mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", small, preload=()).code != 0:
        pytest.skip("no mount here")
    try:
        for report in place.work.glob("cachalot.*.json"):
            report.unlink()
        asker = place.run("starve", 40, 0, **limited(place, 64, CACHALOT_PAGE_DIR=small))
        assert (asker.code, asker.err, asker.value("count")) == (0, "", 40)
        aside(place, "its books find no room beside the pages")
    finally:
        place.run(shutil.which("umount") or "/bin/umount", small, preload=())


def test_without_a_page_there_is_no_group(place):
    environment = limited(place, 64, CACHALOT_PAGE_DIR="/proc/nowhere")
    assert place.run("starve", 40, 0, **environment).value("count") == 40
    aside(place, "this process has no page with a name")


def test_books_that_nobody_uses_are_removed(place):
    environment = limited(place, 64)
    idle = holder(place, **environment)
    place.run("starve", 1, 0, **{**environment, "CACHALOT_GROUP": "b"})
    assert len(list(place.pages.glob("*.group"))) == 2
    place.run("starve", 1, 0, **{**environment, "CACHALOT_CONF": None})
    assert len(list(place.pages.glob("*.group"))) == 1
    assert place.run("starve", 40, 0, **environment).value("count") == 31
    idle.communicate("\n", timeout=20)


def test_what_names_the_group(place):
    """CACHALOT_GROUP, else the Slurm job, else the cgroup."""
    environment = limited(place, 64, CACHALOT_GROUP=None)
    for more in ({}, {"SLURM_JOB_ID": "7"}, {"SLURM_JOB_ID": "8"}, {"SLURM_JOB_ID": "8", "CACHALOT_GROUP": "x"}, {"CACHALOT_GROUP": "x"}):
        running = place.start("wait_for_input", **{**environment, **more})
        assert running.stdout.readline() == "ready\n"
    assert len(list(place.pages.glob("*.group"))) == 4
    for process in list(place.running):
        process.communicate("\n", timeout=20)
