"""cachalot top: a live table of all programs of this user that use the cache."""

import json
import math
import os
import select
import shutil
import signal
import sys
import termios
import time
import tty
import unicodedata

from cachalot_command.common.arguments import split
from cachalot_command.common.tools import Failure, printable, unguarded
from cachalot_command.common.units import bytes_text, count_text, rank_text, ratio_text
from cachalot_command.reading.live import Watch
from cachalot_command.writing.curve import sparkline

HELP = """\
usage: cachalot top [--once] [--json] [--interval SECONDS] [--sort COLUMN]

Shows, anew each second, what all programs of this user hold, a line per program
and GPU. It reads their pages: they notice nothing.
  --once      one table, of what happened within one interval
  --json      one line of JSON each time, for programs
  --interval  seconds between two looks (1; from 0.1)
  --sort allocated|reserved|waste|hits|waits|grows|pid
              by reserved, unless told; keys: a r w h f g p, and q to end

  WASTE    reserved, but not allocated
  HITS/S   requests served from the cache
  WAITS/S  waits of the host for the device, in frees; WAIT% of the time
  ASKED    of other processes, for want of memory; GIVEN to others
  LAST MINUTE  the most allocated in each five seconds of it
  GROWS/S  a leak? the least left in each quarter of the last minute grew each
           time, by so much
  PID*     of another container: nobody here can tell whether it still runs

Pages: CACHALOT_PAGE_DIR, else /dev/shm/cachalot-UID. Exit code: 0, 2 usage,
3 no directory that can be read (with --once).
example: cachalot top --once --json | jq '.processes[].devices[].reserved_bytes'
"""

SORTS = {"reserved": "reserved_bytes", "allocated": "allocated_bytes", "waste": "waste_bytes",
         "hits": "hits_per_s", "waits": "fence_waits_per_s", "grows": "growing_bytes_per_s",
         "pid": None}
KEYS = {"r": "reserved", "a": "allocated", "w": "waste", "h": "hits", "f": "waits", "g": "grows",
        "p": "pid"}
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, CLEAR_LINE, CLEAR_REST, BOLD, REVERSE, PLAIN = ("\x1b[H", "\x1b[K", "\x1b[J", "\x1b[1m",
                                                      "\x1b[7m", "\x1b[m")
PROGRAM_LEAST, PROGRAM_MOST, MINUTE = 10, 40, 12


def short_bytes(value):
    return bytes_text(value).strip()


def grows_text(value):
    if not value:
        return "-" if value is None else "no"
    return "+" + short_bytes(value)


def rate_text(value):
    return "-" if value is None else count_text(value).strip()


def percent(value):
    return ratio_text(value).replace(" ", "")


# (title, width, text of a row); the first ones stay longest when the terminal is narrow
COLUMNS = {
    "PID": (8, lambda r: r["pid_text"]),
    "RANK": (4, lambda r: rank_text(r["rank"])),
    "PROGRAM": (PROGRAM_LEAST, lambda r: r["program"]),
    "STATE": (6, lambda r: r["state"]),
    "GPU": (3, lambda r: str(r["device"])),
    "ALLOCATED": (9, lambda r: short_bytes(r["allocated_bytes"])),
    "RESERVED": (9, lambda r: short_bytes(r["reserved_bytes"])),
    "WASTE": (9, lambda r: short_bytes(r["waste_bytes"])),
    "WASTE%": (6, lambda r: percent(r["waste_bytes"] / r["reserved_bytes"]
                                    if r["reserved_bytes"] else None)),
    "HITS/S": (7, lambda r: rate_text(r["hits_per_s"])),
    "HIT%": (6, lambda r: percent(r["hit_ratio"])),
    "WAITS/S": (7, lambda r: rate_text(r["fence_waits_per_s"])),
    "WAIT%": (6, lambda r: percent(r["fence_wait_ratio"])),
    "OOM": (4, lambda r: rate_text(r["ooms"])),
    "ASKED": (9, lambda r: short_bytes(r["asked_bytes"])),
    "GIVEN": (9, lambda r: short_bytes(r["given_bytes"])),
    "GROWS/S": (10, lambda r: grows_text(r["growing_bytes_per_s"])),
    "LAST MINUTE": (MINUTE, lambda r: sparkline(r.get("minute", []))),
    "DEVICE": (20, lambda r: r["name"]),
    "HOST": (12, lambda r: r["hostname"]),
}
PRIORITY = ("PID", "PROGRAM", "ALLOCATED", "RESERVED", "GPU", "RANK", "STATE", "WASTE", "LAST MINUTE", "GROWS/S", "HITS/S",
            "WAITS/S", "OOM", "HIT%", "WAIT%", "WASTE%", "ASKED", "GIVEN", "DEVICE", "HOST")
LEFT = ("PROGRAM", "STATE", "DEVICE", "HOST")


def cells(text, width, left=False):
    """`text` in exactly that many columns of a terminal."""
    out, used = [], 0
    for c in printable(text):
        wide = 0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        if used + wide > width:
            break
        out.append(c)
        used += wide
    blanks = " " * (width - used)
    return "".join(out) + blanks if left else blanks + "".join(out)


def chosen_columns(rows, width):
    """Titles and widths of the columns that fit, in order."""
    needed = {name: least for name, (least, _) in COLUMNS.items()}
    needed["RANK"] = max([needed["RANK"], *(len(rank_text(r["rank"])) for r in rows)])  # a shortened rank would be another one
    unused = {"RANK"} if all(r["rank"] is None for r in rows) else set()
    unused |= {"STATE"} if all(r["state"] != "asleep" for r in rows) else set()
    left = [name for name in PRIORITY if name not in unused]
    chosen, used = set(), -1
    for name in left:
        if used + 1 + needed[name] > width:
            break
        chosen.add(name)
        used += 1 + needed[name]
    widths = {name: least for name, least in needed.items() if name in chosen}
    if "PROGRAM" in widths:
        longest = max([len(r["program"]) for r in rows], default=0)
        more = min(width - used, max(longest, PROGRAM_LEAST) - PROGRAM_LEAST,
                   PROGRAM_MOST - PROGRAM_LEAST)
        widths["PROGRAM"] += max(more, 0)
    return widths


def process_object(process):
    page = process.page
    return {"pid": page.pid, "rank": page.rank, "program": page.program or "-",
            "exe": page.exe, "hostname": page.hostname, "session": page.session,
            "page": printable(page.path), "state": "elsewhere" if not page.is_here else "asleep" if page.is_asleep else "running",
            "devices": process.devices}


NOTHING = {"device": "-", "name": "-", "allocated_bytes": 0, "reserved_bytes": 0, "waste_bytes": 0,
           "hit_ratio": None, "hits_per_s": None, "fence_waits_per_s": None,
           "fence_wait_ratio": None, "ooms": 0, "asked_bytes": 0, "given_bytes": 0, "growing_bytes_per_s": None}


def drawn_object(process):
    """The same with the last minute of each device."""
    minutes = process.minutes(MINUTE)
    each = process_object(process)
    return {**each, "devices": [{**device, "minute": minutes.get(device["device"], [])} for device in each["devices"]]}


def rows_of(objects, sort):
    """A row per program and device."""
    rows = []
    for each in objects:
        for device in each["devices"] or [NOTHING]:
            star = "*" if each["state"] == "elsewhere" else ""
            rows.append({**each, **device, "pid_text": f"{each['pid']}{star}"})
    key = SORTS[sort]
    if key:
        rows.sort(key=lambda row: -1 if row[key] is None else row[key], reverse=True)
    return rows


def head_lines(objects, rows, interval):
    allocated, reserved = (sum(r[k] for r in rows) for k in ("allocated_bytes", "reserved_bytes"))
    waste = sum(r["waste_bytes"] for r in rows)
    share = f" ({100 * waste / reserved:.0f} %)" if reserved else ""
    programs = f"{len(objects)} program{'s' * (len(objects) != 1)}"
    return [f"cachalot {time.strftime('%H:%M:%S')}  {programs}, every {interval:g} s",
            f"allocated {short_bytes(allocated)}, reserved {short_bytes(reserved)}, "
            f"waste {short_bytes(waste)}{share}"]


def table_lines(rows, width):
    """The title line, and a line per row."""
    widths = chosen_columns(rows, width)
    lines = [" ".join(cells(name, w, name in LEFT) for name, w in widths.items())]
    lines += [" ".join(cells(COLUMNS[name][1](row), w, name in LEFT)
                       for name, w in widths.items()) for row in rows]
    return [cells(line.rstrip(), width, left=True).rstrip() for line in lines]


def problem_lines(problems):
    lines = [f"{path}: {what}" for path, what in sorted(problems.items())]
    return lines[:2] + ([f"and {len(lines) - 2} more pages that cannot be read"]
                        if len(lines) > 2 else [])


def screen(watch, objects, rows, size, options):
    """The lines of a screen; the title of the table is the fourth."""
    width, height = max(size.columns, 1), max(size.lines, 1)
    foot = problem_lines(watch.problems) if height > 8 else []
    room = max(height - 4 - len(foot) - 1, 1)
    table = table_lines(rows, width)
    body = table[1:room + 1]
    if len(table) - 1 > room:
        body[-1:] = [f"… and {len(table) - room} more"]
    if not rows:
        body = ["no running program of this user uses the cache"]
    lines = [*head_lines(objects, rows, options["interval"]), "", table[0], *body, *foot]
    return [cells(line, width, left=True).rstrip() for line in lines[:height]]


def json_line(watch, objects, interval):
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return json.dumps({"schema_version": "1.0.0", "kind": "top", "time": now, "interval_s": interval,
                       "processes": objects,
                       "problems": [f"{printable(path)}: {what}"
                                    for path, what in sorted(watch.problems.items())]})


def plain(watch, options, last):
    """A table or a line of JSON, for --once and where escape sequences mean nothing."""
    processes = watch.look()
    if options["json"]:
        print(json_line(watch, [process_object(process) for process in processes], options["interval"]), flush=True)
        return
    objects = [drawn_object(process) for process in processes]
    rows = rows_of(objects, options["sort"])
    width = shutil.get_terminal_size((160, 24)).columns
    lines = [*head_lines(objects, rows, options["interval"]), "", *table_lines(rows, width)]
    if not rows:
        lines[3:] = ["no running program of this user uses the cache"]
    print("\n".join([*lines, *map(printable, problem_lines(watch.problems))]))
    if not last:
        print(flush=True)


class Terminal:
    """The alternate screen of the terminal, and keys without Return. All is restored at the end."""

    def __enter__(self):
        self.wake, self.woken = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(self.wake, False)
        self.keys = sys.stdin.fileno() if sys.stdin and sys.stdin.isatty() else None
        self.saved = termios.tcgetattr(self.keys) if self.keys is not None else None
        signal.set_wakeup_fd(self.woken, warn_on_full_buffer=False)
        for number in (signal.SIGWINCH, signal.SIGCONT):
            signal.signal(number, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: sys.exit(128 + number))
        signal.signal(signal.SIGTSTP, self.stop)
        self.enter()
        return self

    def enter(self):
        if self.saved:
            tty.setcbreak(self.keys, termios.TCSANOW)
        unguarded(sys.stdout).write(ENTER)
        sys.stdout.flush()

    def leave(self):
        unguarded(sys.stdout).write(PLAIN + LEAVE)
        sys.stdout.flush()
        if self.saved:
            termios.tcsetattr(self.keys, termios.TCSANOW, self.saved)

    def __exit__(self, *_):
        signal.set_wakeup_fd(-1)
        try:
            self.leave()
        except OSError:
            pass  # the terminal is closed

    def stop(self, *_):
        """Ctrl-Z: restores the shell's screen; `fg` brings this one back."""
        self.leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self.enter()

    def wait(self, until):
        """Keys typed before `until`; returns at once when the window changes."""
        watched = [self.wake] + ([self.keys] if self.keys is not None else [])
        ready = select.select(watched, [], [], max(until - time.monotonic(), 0))[0]
        if self.wake in ready:
            os.read(self.wake, 1000)
        if self.keys not in ready:
            return ""
        typed = os.read(self.keys, 100)
        if not typed:
            self.keys, self.saved = None, None
        return typed.decode("ascii", "replace")

    @staticmethod
    def show(lines):
        bold = not os.environ.get("NO_COLOR")
        styled = []
        for i, line in enumerate(lines):
            style = (REVERSE if i == 3 else BOLD if i == 0 else "") if bold else ""
            styled.append(f"{style}{line}{PLAIN if style else ''}{CLEAR_LINE}")
        unguarded(sys.stdout).write(HOME + "\r\n".join(styled) + CLEAR_REST)
        sys.stdout.flush()


def live(watch, options):
    """Shows the table until q is typed."""
    with Terminal() as terminal:
        while True:
            objects = [drawn_object(process) for process in watch.look()]
            due = time.monotonic() + options["interval"]
            while time.monotonic() < due:
                rows = rows_of(objects, options["sort"])
                size = shutil.get_terminal_size()
                terminal.show(screen(watch, objects, rows, size, options))
                for key in terminal.wait(due):
                    if key in ("q", "Q", "\x03"):
                        return
                    options["sort"] = KEYS.get(key, options["sort"])


def parse(arguments):
    words, given = split("top", arguments, ("--once", "--json"), ("--interval", "--sort"))
    if words:
        raise Failure(2, f"`{words[0]}` is not expected; see `cachalot top --help`")
    try:
        interval = float(given.get("--interval", 1))
    except ValueError:
        interval = math.nan
    if not 0.1 <= interval <= 86400:
        raise Failure(2, "--interval is a number of seconds, from 0.1")
    sort = given.get("--sort", "reserved")
    if sort not in SORTS:
        raise Failure(2, f"--sort is one of {', '.join(SORTS)}")
    return {"once": "--once" in given, "json": "--json" in given, "interval": interval,
            "sort": sort}


def main(arguments):
    """cachalot top."""
    options = parse(arguments)
    watch = Watch()
    knows_escapes = sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
    if knows_escapes and not options["once"] and not options["json"]:
        live(watch, options)
        return 0
    if watch.look() or not options["once"]:
        time.sleep(options["interval"])  # rates need two looks
    while True:
        plain(watch, options, options["once"])
        if options["once"]:
            return 3 if watch.directory in watch.problems else 0
        time.sleep(options["interval"])
