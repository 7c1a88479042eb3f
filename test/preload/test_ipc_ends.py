"""Ends and limits of processes that share memory by IPC: fork and exec while somebody is served, kills, no more files, no
sockets."""

import ctypes
import os
import pathlib
import signal
import socket
import struct
import time

import pytest

from conftest import MIB, stop
from test_ipc import INVALID_HANDLE, INVALID_VALUE, Shell, door, pair, shared  # pylint: disable=unused-import
from test_requests import wait_for


def test_a_fork_while_somebody_is_served(pair):
    """The child has neither door nor visitor."""
    a, b = pair
    _, handle = shared(a)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as visitor:
        visitor.connect("\0" + door(handle)[1:])  # and says nothing for now
        wait_for(lambda: len(a.descriptors()) == 2)
        assert a.number("fork") == 0
    assert b.number("read", b.number("open", handle, 21 * MIB)) == 7
    a.end(), b.end()


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("end, failing", [("closing", None), ("refused", "cuCtxDestroy_v2:1:999")])
def test_another_context_ends(place, end, failing, mapped):
    place.same("ipc_context", end, CACHALOT_CONF=f"expandable_segments:{mapped}", CACHALOT_SIM_FAIL=failing)


def test_closed_where_no_wait_can_be_had(place):
    place.same("ipc_reopen", CACHALOT_CONF="expandable_segments:True", CACHALOT_SIM_CAPACITY="256M")


def test_a_descriptor_that_became_the_programs(pair):
    """A forked child keeps it."""
    a, b = pair
    shared(a)
    assert a.number("replace") == 1
    a.end(), b.end()


def test_exec_closes_the_door(pair):
    a, b = pair
    _, handle = shared(a)
    a.process.stdin.write("exec\n")
    a.process.stdin.flush()
    wait_for(lambda: pathlib.Path(f"/proc/{a.pid}/comm").read_text() == "cat\n")
    a.process.stdin.write("ran\n")
    a.process.stdin.flush()
    assert a.process.stdout.readline() == "ran\n"
    assert a.descriptors() == [] and b.ask("open", handle, MIB) == f"error {INVALID_HANDLE}"
    a.end(), b.end()


def test_killed_while_somebody_waits(pair):
    a, b = pair
    _, handle = shared(a)
    stop(a.process)
    b.process.stdin.write(f"open {handle} {MIB}\n")
    b.process.stdin.flush()
    wait_for(lambda: len(b.descriptors()) == 1)
    time.sleep(0.2)  # until it is connected
    begin = time.monotonic()
    a.process.kill()
    assert b.process.stdout.readline() == f"error {INVALID_VALUE}\n"
    assert time.monotonic() - begin < 4  # longer is SILENCE_MS
    b.end()


@pytest.mark.parametrize("who", ["exporter", "importer"])
def test_no_more_files(pair, who):
    """Errors of handles, as long as it is so."""
    a, b = pair
    _, handle = shared(a)
    other = a.number("make", 3 * MIB)
    assert a.number("fill", other, 7) == 0
    (a if who == "exporter" else b).ask("files", 3)
    if who == "exporter":
        assert a.number("hangup") == 0
        assert a.ask("export", other) == f"error {INVALID_VALUE}"
    assert b.ask("open", handle, MIB).startswith("error ")
    for shell in (a, b):
        assert shell.number("files", 256) == 0
    assert b.number("read", b.number("open", a.ask("export", other), 3 * MIB)) == 7
    a.end(), b.end()


def forbid_sockets():
    """seccomp: socket(2) is not permitted, as in a sandbox. Of x86-64 and aarch64."""
    number = {"x86_64": 41, "aarch64": 198}[os.uname().machine]
    code = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in code))
    head = ctypes.create_string_buffer(struct.pack("@HP", len(code), ctypes.addressof(program)))
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, head, 0, 0) == 0


def test_no_sockets_at_all(place):
    """A handle that nobody can open is not given; the program goes on."""
    a = Shell(place, prepare=forbid_sockets)
    number = a.number("make", 3 * MIB)
    assert a.ask("export", number) == f"error {INVALID_VALUE}"
    assert a.number("fill", number, 7) == 0 and a.number("read", number) == 7
    a.end()
    assert place.only_report().warned("no socket or thread") == 1
