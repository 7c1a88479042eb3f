"""cachalot top and show as a person sees them: in tmux, in terminals of three sizes."""

import os
import pty
import shlex
import shutil
import subprocess
import time

import pytest
from conftest import COMMAND

SIZES = [(60, 12), (80, 24), (200, 50)]


class Terminal:
    """A tmux of our own, with one window of that size that runs a command."""

    def __init__(self, place, size, *command):
        self.tmux = ["tmux", "-f", "/dev/null", "-S", str(place.pages / "tmux")]  # a short path: that of a socket has 107 bytes
        environment = {**place.environment, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        subprocess.run([*self.tmux, "new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), *map(str, command)],
                       env=environment, cwd=place.work, check=True, timeout=60)

    def call(self, *words):
        return subprocess.run([*self.tmux, *words], capture_output=True, text=True, check=False, timeout=60).stdout

    def until(self, good, *words):
        """What tmux says, once it is `good`."""
        end = time.monotonic() + 60
        while not good(said := self.call(*words)):
            assert time.monotonic() < end, said
            time.sleep(0.05)
        return said

    def screen(self, text, times=1):
        """The screen's lines, once `text` is on so many of them."""
        return self.until(lambda said: sum(text in line for line in said.splitlines()) >= times, "capture-pane", "-p").splitlines()

    def close(self):
        self.call("kill-server")


@pytest.fixture
def terminal(place):
    if not shutil.which("tmux"):
        pytest.skip("no tmux")
    opened = []

    def make(size, *command):
        opened.append(Terminal(place, size, *command))
        return opened[-1]
    yield make
    for each in opened:
        each.close()


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_top_fits_and_answers(place, terminal, size):
    for rank in range(3):
        place.start("busy", RANK=str(rank))
    shown = terminal(size, *COMMAND, "top", "--interval", "0.2")
    lines = shown.screen("make_page", 3)
    assert sum("make_page" in line for line in lines) == 3
    assert max(map(len, lines)) <= size[0] and len(lines) <= size[1]
    head = next(line for line in lines if "PID" in line)
    assert "RESERVED" in head and ("GROWS/S" in head or size[0] < 120), head
    shown.call("resize-window", "-x", "100", "-y", "20")
    assert max(map(len, shown.screen("make_page"))) <= 100
    shown.call("send-keys", "q")
    shown.until(lambda said: not said, "list-sessions")  # it has ended, and its terminal with it


def test_the_terminal_is_as_before(place, terminal):
    """No cursor lost, no other screen left, after q and after an interrupt."""
    place.start("busy")
    shown = terminal((80, 24), "sh")
    for key in ("q", "C-c"):
        shown.call("send-keys", "clear; " + shlex.join(COMMAND) + " top", "Enter")
        shown.screen("make_page")
        shown.call("send-keys", key)
        shown.until("sh\n".__eq__, "display-message", "-p", "#{pane_current_command}")  # what is typed before is lost
        shown.call("send-keys", "stty -a | grep -q ' icanon .* echo ' && echo back-$((40+2))", "Enter")
        shown.screen("back-42")
        assert shown.call("display-message", "-p", "#{alternate_on} #{cursor_flag}").split() == ["0", "1"]


@pytest.mark.parametrize("term", ["dumb", "", None])
def test_a_terminal_that_knows_no_escapes_gets_tables(place, term):
    place.start("busy")
    master, slave = pty.openpty()
    environment = {name: value for name, value in {**place.environment, "TERM": term}.items() if value is not None}
    text = ""
    with subprocess.Popen([*COMMAND, "top", "--interval", "0.1"], env=environment, stdin=slave, stdout=slave) as process:
        os.close(slave)
        while text.count("make_page") < 3:
            text += os.read(master, 65536).decode()
        process.terminate()
    os.close(master)
    assert "\x1b" not in text and text.count("RESERVED") >= 3


@pytest.mark.parametrize("size", SIZES[1:], ids=str)
def test_show_fits(place, terminal, size):
    process, _ = place.start("report")
    path = process.stdout.readline()[:-1]
    shown = terminal(size, "sh", "-c", f"{shlex.join(COMMAND)} show {shlex.quote(path)} | tail -n 20; sleep 60")
    lines = shown.screen("Leaked: ")
    assert max(map(len, lines)) <= size[0] and any("over time: █" in line for line in lines)
