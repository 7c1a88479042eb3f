"""Replays that take long: they say how far they are, and end with who waits for them."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from conftest import OWN, ROOT, TOOL, write

COMMAND = [sys.executable, str(ROOT / "scripts/cachalot")]
PAUSE_S = 1.2  # progress is shown after a second


def wait_for(condition):
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError(condition)


def position(process, path):
    """How much of `path` it has read."""
    for descriptor in os.scandir(f"/proc/{process.pid}/fd"):
        if os.path.realpath(descriptor.path) == str(path):
            with open(f"/proc/{process.pid}/fdinfo/{descriptor.name}", encoding="ascii") as lines:
                return int(next(lines).split()[1])
    return 0


def test_operations_of_a_pipe():
    """And it wipes them out in the end."""
    text = OWN.encode() + b"".join(b"a,%d,512,0\n" % i for i in range(640))
    with subprocess.Popen([TOOL, "--progress", "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        process.stdin.write(text[:100])
        process.stdin.flush()
        time.sleep(PAUSE_S)
        process.stdin.write(text[100:])
        process.stdin.close()
        said = process.stderr.read()
    assert process.returncode == 0
    assert re.fullmatch(rb"(\rcachalot: \d+ operations\033\[K)+\r\033\[K", said) and said.startswith(b"\rcachalot: 32 operations"), said


def test_part_of_a_file(tmp_path):
    path = write(tmp_path / "x", OWN + "a,1,512,0\nf,1\n" * 3_000_000)
    with subprocess.Popen([TOOL, "--progress", path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        wait_for(lambda: position(process, path) > 1 << 20)
        process.send_signal(signal.SIGSTOP)
        time.sleep(PAUSE_S)
        process.send_signal(signal.SIGCONT)
        said = process.stderr.read()
    assert process.returncode == 0
    assert re.fullmatch(rb"(\rcachalot: [\d.]+ (million )?operations, \d+ %\033\[K)+\r\033\[K", said), said
    parts = [int(part) for part in re.findall(rb"(\d+) %", said)]
    assert parts == sorted(parts) and parts[0] < 100, parts


def started(folder, *words, then):
    """A command whose replay does `then`, in its place one that takes long; and the replay's process id."""
    told = folder / "pid"
    write(folder / "cachalot-replay", f"#!/bin/sh\necho $$ >{told}.new && mv {told}.new {told}\n{then}\n").chmod(0o755)
    write(folder / "x", OWN + "a,1,512,0\n")
    process = subprocess.Popen([*words, "x", "--format", "json"], cwd=folder, text=True,
                               env={**os.environ, "CACHALOT_LIBRARY": str(folder / "libcachalot.so")},
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(told.exists)
    return process, int(told.read_text())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("name", ["replay", "tune"])
def test_what_is_ended_ends_its_replay(tmp_path, name, number):
    process, replay = started(tmp_path, *COMMAND, name, then="exec sleep 600")
    process.send_signal(number)
    assert process.communicate(timeout=60) == ("", "") and process.returncode == 128 + number
    assert not os.path.exists(f"/proc/{replay}")


def test_nohup_is_left_alone(tmp_path):
    process, _ = started(tmp_path, "nohup", *COMMAND, "replay", then="sleep 1; echo done")
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=60) == ("done\n", "") and process.returncode == 0
