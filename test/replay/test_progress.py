"""Replays that take long: they say how far they are, and end with who waits for them."""

import contextlib
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from conftest import BUILD, OWN, ROOT, TOOL, write

COMMAND = [sys.executable, str(ROOT / "scripts/cachalot")]
PAUSE_S = 1.2  # progress is shown after a second
OPERATIONS = 8_000_000
LONG = OWN + "a,1,512,0\nf,1\n" * (OPERATIONS // 2)


def wait_for(condition):
    for _ in range(10000):
        if got := condition():
            return got
        time.sleep(0.001)
    raise AssertionError(condition)


def position(process, path):
    """How much of `path` the process has read."""
    for descriptor in os.scandir(f"/proc/{process}/fd"):
        if os.path.realpath(descriptor.path) == str(path):
            with open(f"/proc/{process}/fdinfo/{descriptor.name}", encoding="ascii") as lines:
                return int(next(lines).split()[1])
    return 0


def is_replay(process):
    """Of a zombie it is not."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return os.readlink(f"/proc/{process}/exe") == str(TOOL)


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
    path = write(tmp_path / "x", LONG)
    with subprocess.Popen([TOOL, "--progress", path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        wait_for(lambda: position(process.pid, path) > 1 << 20)
        process.send_signal(signal.SIGSTOP)
        time.sleep(PAUSE_S)
        process.send_signal(signal.SIGCONT)
        said = process.stderr.read()
    assert process.returncode == 0
    assert re.fullmatch(rb"(\rcachalot: [\d.]+ (million )?operations, \d+ %\033\[K)+\r\033\[K", said), said
    parts = [int(part) for part in re.findall(rb"(\d+) %", said)]
    assert parts == sorted(parts) and parts[0] < 100, parts


def end_as_usual():
    """Whatever this is run by."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def started(path, *words):
    """A command, and the process id of its replay, which is stopped: so it takes long."""
    process = subprocess.Popen([*words, path, "--format", "json"], env={**os.environ, "CACHALOT_LIBRARY": str(BUILD / "libcachalot.so")},
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=end_as_usual)

    def its_replay():
        with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as children:
            return next((int(child) for child in children.read().split() if is_replay(child)), None)

    replay = wait_for(its_replay)
    wait_for(lambda: path.suffix == ".gz" or position(replay, path) > 1 << 20)
    os.kill(replay, signal.SIGSTOP)
    return process, replay


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, -15), (signal.SIGHUP, -1), (signal.SIGKILL, -9), (signal.SIGINT, 130)])
@pytest.mark.parametrize("name", ["replay", "tune"])
def test_a_replay_ends_with_who_waits_for_it(tmp_path, name, number, code):
    process, replay = started(write(tmp_path / "x", LONG), *COMMAND, name)
    process.send_signal(number)
    assert process.communicate(timeout=60) == ("", "") and process.returncode == code
    wait_for(lambda: not is_replay(replay))


def test_nohup_is_left_alone(tmp_path):
    process, replay = started(write(tmp_path / "x", LONG), "nohup", *COMMAND, "replay")
    process.send_signal(signal.SIGHUP)
    os.kill(replay, signal.SIGCONT)
    output, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "") and json.loads(output)["totals"]["requests"] == OPERATIONS // 2


def test_who_is_interrupted_does_not_wait_until_its_replay_reads_on(tmp_path):
    """Each part of this file leaves something to be written in a buffer."""
    parts = b"".join(gzip.compress(LONG[at:at + 3000].encode()) for at in range(0, 30_000_000, 3000))
    process, _ = started(write(tmp_path / "x.gz", parts), *COMMAND, "replay")
    time.sleep(1)  # by then the pipe is full
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == ("", "") and process.returncode == 130


def test_it_wants_its_parent(tmp_path):
    done = subprocess.run([TOOL, "--parent", "1", write(tmp_path / "x", OWN)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "") and "not its parent" in done.stderr
