"""screenshots.py BUILD: makes the pictures of `top`, `show` and the tour of docs/reports.md anew, in screenshots/ beside this file, for a person to look at.

The commands run in tmux, in front of programs on the simulated device; Rich (python3-rich, or pip install rich) draws what the
terminal shows, and Chromium makes a picture of it.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import browser
from rich.console import Console
from rich.text import Text

HERE = pathlib.Path(__file__).resolve().parent
COMMAND = HERE.parents[1] / "scripts/cachalot"
# (file, columns, lines, command, what is on the screen when it may be taken)
PICTURES = (
    ("top-wide", 112, 9, "cachalot top", r"[0-9] +[0-9]+\.[0-9]%  "),
    ("top-narrow", 80, 9, "cachalot top", r"[0-9] +(no|-)$"),
    ("show", 80, 64, "cachalot show train_loop.json", "Leaked: "),
)


def capture(work, columns, lines, command, wanted, environment):
    """What a terminal of that size shows, with its colours."""
    tmux = ["tmux", "-f", "/dev/null", "-S", str(work / "tmux")]
    subprocess.run([*tmux, "new-session", "-d", "-x", str(columns), "-y", str(lines), "sh", "-c", f"{command}; sleep 60"],
                   env=environment, cwd=work, check=True)
    try:
        for _ in range(100):
            time.sleep(0.1)
            screen = subprocess.run([*tmux, "capture-pane", "-p", "-e"], stdout=subprocess.PIPE, text=True, check=True).stdout
            if re.search(wanted, re.sub(r"\x1b\[[0-9;]*m", "", screen), re.M):
                return screen.rstrip("\n")
        raise AssertionError(screen)
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
        time.sleep(0.3)


def draw(screen, columns, title, path):
    """The terminal as a page of its own, with no font from the network."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=columns, file=nowhere, force_terminal=True, color_system="truecolor")
        for line in screen.split("\n"):
            console.print(Text.from_ansi(line), no_wrap=True, overflow="crop", crop=True)
        svg = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title=title), flags=re.S).replace("Fira Code", "DejaVu Sans Mono")
    path.write_text('<!doctype html><meta charset="utf-8"><body style="margin:0" data-drawn>'
                    '<script>document.documentElement.dataset.drawnMs = 1</script>' + svg, encoding="utf-8")
    return [float(n) for n in re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups()]


def picture(tab, page, size, path):
    tab.open(page, width=round(size[0]), height=round(size[1]))
    tab.screenshot(path)
    assert not tab.errors and not [u for u in tab.requests if not u.startswith("file:")], (tab.errors, tab.requests)


def main(build):
    """Runs the programs, then takes each picture."""
    build = pathlib.Path(build).resolve()
    tab = browser.Browser(browser.find())
    with tempfile.TemporaryDirectory(dir="/dev/shm") as work:
        work = pathlib.Path(work)
        environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "CACHALOT_PAGE_DIR": str(work),
                       "LD_LIBRARY_PATH": str(build / "test/sim"), "CACHALOT_LIBRARY": str(build / "libcachalot.so"),
                       "PATH": f"{COMMAND.parent}:{os.environ['PATH']}"}
        environment.pop("TMUX", None)

        def start(output, *arguments, **more):
            return subprocess.Popen([COMMAND, "run", "--output", work / output, build / "test/workloads/train_loop", *arguments],
                                    env={**environment, **more}, stdout=subprocess.DEVNULL)
        start("train_loop.json").wait()
        ranks = [start(f"{rank}.json", "1000000000", RANK=str(rank)) for rank in range(3)]
        try:
            time.sleep(2)
            for name, columns, lines, command, wanted in PICTURES:
                screen = capture(work, columns, lines, command, wanted, environment)
                size = draw(screen, columns, command, work / "page.html")
                picture(tab, work / "page.html", size, HERE / f"screenshots/{name}.png")
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        subprocess.run([COMMAND, "run", "--conf", "expandable_segments:False", "--html", work / "memory.html", build / "test/workloads/seed4a_holes"], check=True,
                       env={**environment, "CACHALOT_OUTPUT": str(work / "%e.json"), "CACHALOT_SITES": "1"}, stdout=subprocess.DEVNULL)
        picture(tab, work / "memory.html", (1000, 1500), HERE / "screenshots/tour.png")
    tab.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
