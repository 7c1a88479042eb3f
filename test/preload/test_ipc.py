"""IPC of mapped memory: two processes see each other's bytes; whatever may go wrong between them is an error, and soon."""

import contextlib
import ctypes
import os
import pathlib
import signal
import socket
import struct
import time

import pytest

from conftest import MIB, stop
from test_requests import each, wait_for

MAPPED = "expandable_segments:True,large_segment_size_mb:2"
LARGE = "expandable_segments:True,large_segment_size_mb:14,memory_limit_mb:1024"
OURS = b"cachalo2"
INVALID_VALUE, INVALID_CONTEXT, INVALID_HANDLE = 1, 201, 400


class Shell:
    """A process that does what it is told (ipc_shell.c)."""

    def __init__(self, place, **environment):
        self.process = place.start("ipc_shell", **{"CACHALOT_CONF": MAPPED, **environment})
        self.pid = self.process.pid

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def number(self, *words):
        return int(self.ask(*words))

    def end(self):
        out, err = self.process.communicate(timeout=60)
        assert (self.process.returncode, out, err) == (0, "", "")

    def descriptors(self):
        """What its sockets are called."""
        return [name for name in each(self.pid, "fd", os.readlink) if "socket" in name]

    def memory(self):
        """How many handles of the device it has that can be exported, or were imported."""
        return sum("memfd:cachalot-sim" in name for name in each(self.pid, "fd", os.readlink))

    def threads(self):
        return list(each(self.pid, "task", lambda path: (path / "comm").read_text().strip()))


@pytest.fixture
def pair(place):
    return Shell(place), Shell(place)


def shared(exporter, size=21 * MIB + 100, byte=7):
    """(number, handle) of filled memory."""
    number = exporter.number("make", size)
    assert exporter.number("fill", number, byte) == 0
    return number, exporter.ask("export", number)


@pytest.mark.parametrize("conf", [MAPPED, "expandable_segments:True", LARGE])
@pytest.mark.parametrize("size", [MIB + 512, 3 * MIB, 45 * MIB + 100])
def test_two_processes_see_each_others_bytes(place, conf, size):
    a, b = Shell(place, CACHALOT_CONF=conf), Shell(place, CACHALOT_CONF=conf)
    for shell in (a, b):
        shell.ask("make", 5 * MIB)  # so that blocks begin inside chunks
    mine, handle = shared(a, size)
    assert bytes.fromhex(handle)[:8] == OURS
    theirs = b.number("open", handle, size)
    assert b.number("read", theirs) == 7
    assert b.number("fill", theirs, 9) == 0 and a.number("read", mine) == 9
    assert a.number("fill", mine, 11) == 0 and b.number("read", theirs) == 11
    back, handle = shared(b, size, 5)  # and the other way, at the same time
    assert a.number("read", a.number("open", handle, size)) == 5
    assert b.number("close", theirs) == 0
    assert a.number("free", mine) == 0 and b.number("free", back) == 0
    for shell in (a, b):
        shell.end()
    for report in place.reports():
        assert report.warned("in front can open it") == 1 and report["others"]["imported"]["allocated"] == 1


def test_ranges_and_handles_fit(pair):
    """UCX and NCCL ask whether memory can be exported this way, then for handle and range, and add the offset."""
    a, b = pair
    a.ask("make", 5 * MIB)
    number, handle = shared(a, 3 * MIB)
    assert a.ask("export", number, MIB) == handle  # of an interior pointer: of all of it
    assert a.ask("range", number, MIB) == f"{MIB} {3 * MIB} 1 1"
    theirs = b.number("open", handle, 3 * MIB)
    assert b.ask("range", theirs, MIB).split()[:3] == [str(MIB), str(3 * MIB), "1"]
    a.end(), b.end()


def test_opened_again(pair):
    """In the same context the same pointer, until it is closed as often; in another one its own."""
    a, b = pair
    _, handle = shared(a)
    first, again = b.number("open", handle, MIB), b.number("open", handle, MIB)
    assert b.number("same", first, again) == 1
    assert b.number("close", first) == 0 and b.number("read", again) == 7
    b.ask("context")
    other = b.number("open", handle, MIB)
    assert b.number("same", first, other) == 0 and b.number("read", other) == 7
    assert b.number("destroy") == 0  # takes what was opened in it along
    assert b.number("close", other) == INVALID_VALUE
    assert b.number("close", again) == 0 and b.number("close", again) == INVALID_VALUE
    a.end(), b.end()


def test_peers_of_who_opened_it(place):
    """Access of another device, given before and after."""
    a, b = Shell(place), Shell(place, CACHALOT_SIM_DEVICES=2)
    _, handle = shared(a)
    before = b.number("open", handle, 21 * MIB)
    assert b.number("peer") == 0  # whose context is current from now on
    assert b.number("fill", before, 4) == 0 and b.number("read", before) == 4
    a.end(), b.end()
    a, b = Shell(place), Shell(place, CACHALOT_SIM_DEVICES=2)
    _, handle = shared(a)
    assert b.number("peer") == 0 and b.number("back") == 0
    after = b.number("open", handle, 21 * MIB)
    assert b.number("peer") == 0 and b.number("fill", after, 4) == 0
    a.end(), b.end()


def test_closing_waits_for_work(place):
    """The device would end a program that unmaps what work still uses."""
    a, b = Shell(place), Shell(place, CACHALOT_SIM_LATENCY_NS=100_000_000)
    mine, handle = shared(a, 21 * MIB)
    theirs = b.number("open", handle, 21 * MIB)
    begin = time.monotonic()
    assert b.number("set", theirs, 9) == 0 and b.number("close", theirs) == 0
    assert time.monotonic() - begin > 0.09 and b.memory() == 0
    assert a.number("read", mine) == 9
    a.end(), b.end()


def test_of_its_own(pair):
    a, b = pair
    _, handle = shared(a)
    assert a.ask("open", handle, MIB) == f"error {INVALID_CONTEXT}"
    a.end(), b.end()


def test_of_a_block_that_is_no_more(pair):
    """Also when another one lies there."""
    a, b = pair
    number, handle = shared(a)
    theirs = b.number("open", handle, 21 * MIB)
    assert a.number("free", number) == 0
    assert b.ask("context") and b.ask("open", handle, MIB) == f"error {INVALID_VALUE}"
    again, other = shared(a, byte=3)
    assert a.number("same", number, again) == 1 and other != handle
    assert b.ask("open", handle, MIB) == f"error {INVALID_VALUE}"
    assert b.number("read", b.number("open", other, 21 * MIB)) == 3
    assert theirs == 0
    a.end(), b.end()


def test_of_a_process_that_is_no_more(pair):
    """What was opened stays; nothing is left of the exporter, and nobody waits for it."""
    a, b = pair
    _, handle = shared(a)
    theirs = b.number("open", handle, 21 * MIB)
    a.process.send_signal(signal.SIGKILL)
    a.process.wait()
    assert door(handle) not in pathlib.Path("/proc/net/unix").read_text()
    assert b.number("read", theirs) == 7 and b.number("close", theirs) == 0
    begin = time.monotonic()
    assert b.ask("open", handle, MIB) == f"error {INVALID_HANDLE}"
    assert time.monotonic() - begin < 4  # longer is SILENCE_MS
    b.end()


def test_somebody_else_at_the_door(pair):
    """Whoever takes the name of a process that has ended is told nothing."""
    a, b = pair
    _, handle = shared(a)
    a.process.kill()
    a.process.wait()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.bind("\0" + door(handle)[1:])
        stranger.listen()
        stranger.settimeout(20)
        assert b.ask("open", handle, MIB) == f"error {INVALID_HANDLE}"
        with stranger.accept()[0] as visitor:
            assert visitor.recv(100) == b""
    b.end()


def door(handle):
    return f"@cachalot-{struct.unpack_from('<Q', bytes.fromhex(handle), 24)[0]:016x}"


@pytest.mark.parametrize("at", [8, 12, 16, 24, 32, 40, 48, 56])
def test_handles_that_are_not_right(pair, at):
    """pid, namespace, start, door, secret, address, name, bytes: each is looked at. With another pid or door nobody is there."""
    a, b = pair
    _, handle = shared(a)
    wrong = bytearray.fromhex(handle)
    wrong[at + (7 if at == 56 else 0)] ^= 1
    assert b.ask("open", wrong.hex(), MIB) == f"error {INVALID_HANDLE if at in (8, 24) else INVALID_VALUE}"
    assert b.number("read", b.number("open", handle, 21 * MIB)) == 7
    a.end(), b.end()


def test_a_stopped_process_is_not_waited_for_long(pair):
    a, b = pair
    _, handle = shared(a)
    stop(a.process)
    begin = time.monotonic()
    assert b.ask("open", handle, MIB) == f"error {INVALID_VALUE}"
    assert 1 < time.monotonic() - begin < 20
    a.process.send_signal(signal.SIGCONT)
    assert b.number("read", b.number("open", handle, 21 * MIB)) == 7
    a.end(), b.end()


def test_visitors_that_say_nothing(pair):
    """One is sent away after a while; a wrong secret, or too little said, at once."""
    a, b = pair
    _, handle = shared(a)
    raw = bytes.fromhex(handle)

    def visit():
        visitor = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        visitor.connect("\0" + door(handle)[1:])
        visitor.settimeout(20)
        return visitor

    for said in (raw[:32] + bytes(8) + raw[40:], raw[:10], b"x"):
        with visit() as visitor:
            visitor.send(said)
            assert visitor.recv(100) == b""
    begin = time.monotonic()
    silent = [visit() for _ in range(50)]  # more than are let in at once
    assert silent[0].recv(100) == b"" and time.monotonic() - begin < 1.5  # who has been silent for the longest time goes
    begin = time.monotonic()
    assert b.number("read", b.number("open", handle, 21 * MIB)) == 7
    assert time.monotonic() - begin < 1
    silent += [visit(), visit()]
    silent[-1].send(raw)  # and does not read the answer
    begin = time.monotonic()
    assert b.ask("context") and b.number("read", b.number("open", handle, 21 * MIB)) == 7
    assert time.monotonic() - begin < 1
    begin = time.monotonic()
    assert silent[-2].recv(100) == b"" and 0.5 < time.monotonic() - begin < 10  # each has its own two seconds
    for visitor in silent:
        visitor.close()
    wait_for(lambda: len(a.descriptors()) == 1)
    a.end(), b.end()


def test_every_descriptor_that_comes_is_closed(pair):
    """From a door that is none of ours, in one control message or several."""
    a, b = pair
    _, handle = shared(a)
    raw = bytearray.fromhex(handle)
    struct.pack_into("=I", raw, 8, os.getpid())  # pid, start, number of the door
    struct.pack_into("=Q", raw, 24, 0x1234 + os.getpid())
    before = sorted(each(b.pid, "fd", os.readlink))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as mine, open("/dev/null", "rb") as null:
        mine.bind(f"\0cachalot-{0x1234 + os.getpid():016x}")
        mine.listen()
        for count in (0, 1, 3, 100, 253):
            b.process.stdin.write(f"open {raw.hex()} {MIB}\n")
            b.process.stdin.flush()
            visitor, _ = mine.accept()
            with visitor:
                assert visitor.recv(100) == raw
                files = struct.pack(f"={count}i", *[null.fileno()] * count)
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)] if count else []
                visitor.sendmsg([struct.pack("=2Q", 0, 2 * MIB)], [] if count == 1 else rights)
                with contextlib.suppress(BrokenPipeError):  # it has had enough
                    visitor.sendmsg([struct.pack("=Q", 2 * MIB)], rights)
            assert b.process.stdout.readline().startswith("error")
            assert sorted(each(b.pid, "fd", os.readlink)) == before, count
    a.end(), b.end()


def test_the_overflow_id_is_no_identity(place):
    """A process in a user namespace without names sees every other user by the id that it has itself."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        a = Shell(place, prepare=lambda: libc.unshare(0x10000000) and os._exit(9))
        number = a.number("make", 3 * MIB)
    except (BrokenPipeError, ValueError):
        pytest.skip("no user namespaces here")
    assert a.number("fill", number, 7) == 0
    raw = bytes.fromhex(a.ask("export", number))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as visitor:
        visitor.connect("\0" + door(raw.hex())[1:])
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):  # sent away unheard
            visitor.send(raw)
            assert visitor.recv(100) == b""
    a.end()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_another_user(place):
    a = Shell(place)
    _, handle = shared(a)
    b = Shell(place)
    assert b.number("read", b.number("open", handle, MIB)) == 7
    try:
        stranger = place.start("ipc_shell", CACHALOT_CONF=MAPPED, prepare=lambda: os.setresuid(65534, 65534, 65534))
    except PermissionError:
        pytest.skip("other users may not read where this was built")
    out, _ = stranger.communicate(f"open {handle} {MIB}\n", timeout=60)
    assert out == f"error {INVALID_HANDLE}\n"
    a.end(), b.end()


def test_forks_and_descriptors(pair):
    """A forked child keeps nothing open; who closes it loses the door, and gets another."""
    a, b = pair
    assert a.descriptors() == [] and "cachalot-ipc" not in a.threads()
    number, handle = shared(a)
    assert b.number("read", b.number("open", handle, 21 * MIB)) == 7
    wait_for(lambda: len(a.descriptors()) == 1)  # whom it served is gone soon
    assert a.threads().count("cachalot-ipc") == 1
    assert a.number("fork") == 0
    assert b.ask("context") and b.number("read", b.number("open", handle, 21 * MIB)) == 7
    assert a.number("hangup") == 0
    gone = {f"error {INVALID_HANDLE}", f"error {INVALID_VALUE}"}  # the door shuts when who waits behind it notices
    assert b.ask("context") and b.ask("open", handle, MIB) in gone
    other = a.ask("export", number)
    assert b.number("read", b.number("open", other, 21 * MIB)) == 7
    a.end(), b.end()


def test_a_peer_without_us(place):
    a, b = Shell(place), Shell(place, preload=())
    _, handle = shared(a)
    assert b.ask("open", handle, MIB) == f"error {INVALID_VALUE}"
    a.end(), b.end()


def test_a_peer_that_does_not_cache(place):
    a, b = Shell(place), Shell(place, CACHALOT_CONF="cache:off")
    _, handle = shared(a)
    assert b.number("read", b.number("open", handle, 21 * MIB)) == 7
    a.end(), b.end()


@pytest.mark.parametrize("conf, ours", [("", True), ("ipc:error", True), ("ipc:dedicated", False)])
def test_the_option(place, conf, ours):
    """error: refuses what a peer could read wrongly, which these handles are not; dedicated: the driver's own handles."""
    a = Shell(place, CACHALOT_CONF=f"expandable_segments:auto,{conf}".rstrip(","))
    _, handle = shared(a)
    assert (bytes.fromhex(handle)[:8] == OURS) == ours
    a.end()


@pytest.mark.parametrize("environment", [{"CACHALOT_SIM_EXPORTS": 0}, {"CACHALOT_SIM_FAIL": "cuMemCreate:1:800"}])
def test_devices_without_such_handles(place, environment):
    """As before: the driver's error, and a warning that names the option; memory is mapped all the same."""
    a = Shell(place, **environment)
    number = a.number("make", 3 * MIB)
    assert a.ask("export", number) == f"error {INVALID_VALUE}"
    assert bytes.fromhex(a.ask("export", a.number("make", 3 * MIB)))[:8] != OURS
    a.end()
    report = place.only_report()
    assert report.warned("from now on can be exported") == 1 and report.counter("num_maps") > 0


@pytest.mark.parametrize("failing", ["cuMemImportFromShareableHandle:2:999", "cuMemMap:3:2", "cuMemSetAccess:1:999",
                                     "cuMemAddressReserve:1:2", "cuMemGetAllocationPropertiesFromHandle:1:999"])
def test_opening_that_fails(place, failing):
    """What was mapped is taken down; the next time it works."""
    a, b = Shell(place), Shell(place, CACHALOT_CONF="cache:off", CACHALOT_SIM_FAIL=failing)
    _, handle = shared(a)
    answer = b.ask("open", handle, 21 * MIB)
    assert answer == ("0" if "Properties" in failing else "error 205")  # CUDA_ERROR_MAP_FAILED, as of handles
    assert b.memory() == (11 if answer == "0" else 0)
    assert b.number("read", b.number("open", handle, 21 * MIB)) == 7
    a.end(), b.end()


def test_python_processes(place):
    """torch.multiprocessing's ways to begin a process; memory goes both ways."""
    script = pathlib.Path(__file__).with_name("ipc_python.py")
    ours = place.run(os.sys.executable, script, CACHALOT_CONF=MAPPED, timeout=120)
    assert (ours.code, ours.err, ours.out) == (0, "", "spawn: 7, then 9\nforkserver: 7, then 9\n")


