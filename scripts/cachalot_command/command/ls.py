"""cachalot ls: the pages of this user's programs, running or ended."""

import json

from cachalot_command.common.arguments import split
from cachalot_command.common.tools import Failure, printable
from cachalot_command.common.units import bytes_text, rank_text
from cachalot_command.reading.live import BadPage, Page
from cachalot_command.reading.pages import list_pages, named_directory

HELP = """\
usage: cachalot ls [DIRECTORY] [--json]

Lists the pages of this user's programs, a line each: those that run, and those
that have ended and left theirs.
  DIRECTORY  where they are (CACHALOT_PAGE_DIR, else /dev/shm/cachalot-UID)
  --json     one object per line, for programs

  running    uses the cache now
  asleep     its device memory is on the host: `cachalot wake` brings it back
  killed     ended without a report: `cachalot harvest` makes it
  reported   ended, its report is written: `cachalot harvest` tidies up
  elsewhere  of another container: nobody here can tell whether it still runs
  foreign    of another user: `cachalot ls` as that user says more
  damaged    no page, or one that cannot be trusted: remove it by hand

Exit code: 0, 2 usage, 3 no such directory, or a page is damaged.
example: cachalot ls --json | jq -r 'select(.state == "running").pid'
"""

ROW = "{:>9}  {:<9}  {:>{}}  {:>11}  {:>11}  {}"


def state_of(page):
    if page.life == "dead":
        return "reported" if page.state == "reported" else "killed"
    return {"alive": "running", "bad": "damaged"}.get(page.life, page.life)


def entry_of(page):
    """What is known of a page, for both forms of output."""
    entry = {"pid": page.pid or None, "state": state_of(page), "program": None, "exe": None, "rank": None, "hostname": None,
             "session": None, "allocated_bytes": None, "reserved_bytes": None, "path": printable(page.path),
             "problem": None}
    if page.life in ("bad", "foreign"):
        return {**entry, "problem": printable(page.program)}
    entry.update(program=printable(page.program), session=None if page.session == "-" else printable(page.session))
    try:
        live = Page(page.path)
    except BadPage as problem:  # the page was harvested meanwhile, or is damaged
        return {**entry, "problem": str(problem)}
    try:
        entry.update(exe=printable(live.exe), rank=live.rank, hostname=printable(live.hostname))
        _, rows = live.sample()
        for key in ("allocated_bytes", "reserved_bytes"):
            entry[key] = sum(row[key] for row in rows)
        if live.is_asleep and entry["state"] == "running":
            entry["state"] = "asleep"
    except BadPage as problem:
        entry["problem"] = str(problem)
    finally:
        live.close()
    return entry


def line_of(entry, width):
    what = entry["program"] or f"{entry['path']}: {entry['problem']}"
    return ROW.format(entry["pid"] or "-", entry["state"], rank_text(entry["rank"]), width,
                      bytes_text(entry["allocated_bytes"]), bytes_text(entry["reserved_bytes"]), what)


def main(arguments):
    """cachalot ls."""
    words, options = split("ls", arguments, ("--json",))
    if len(words) > 1:
        raise Failure(2, "give one directory; see `cachalot ls --help`")
    pages = sorted(list_pages(named_directory(words)), key=lambda page: (page.life == "bad", page.pid, page.path))
    entries = [entry_of(page) for page in pages]
    if "--json" in options:
        for entry in entries:
            print(json.dumps(entry))
    elif entries:
        width = max(4, *(len(rank_text(entry["rank"])) for entry in entries))
        print(ROW.format("pid", "state", "rank", width, "allocated", "reserved", "program"))
        for entry in entries:
            print(line_of(entry, width).rstrip())
    else:
        print("no program of this user uses the cache, or has left a page")
    return 3 if any(entry["state"] == "damaged" for entry in entries) else 0
