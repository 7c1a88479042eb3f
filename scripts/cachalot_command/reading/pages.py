"""The live pages of this user: their list, and the report of a page whose process is dead."""

import os
from dataclasses import dataclass

from cachalot_command.common.tools import Failure, page_directory, printable, say, tool



@dataclass
class Page:
    """One line of `cachalot-page list`."""

    path: str
    pid: int
    life: str  # alive, dead, elsewhere, foreign, bad
    state: str
    session: str
    program: str  # or the problem of a bad page


def named_directory(words):
    """The directory of pages that the command line or CACHALOT_PAGE_DIR names; None: the usual one, which need not exist."""
    named = words[0] if words else os.environ.get("CACHALOT_PAGE_DIR")
    if named and not os.path.isdir(named):
        raise Failure(3, f"{'' if words else 'CACHALOT_PAGE_DIR='}{named} is not a directory")
    return named or None


def is_of_another(path):
    """True for a file of another user: `cachalot-page` reads none of those, and it may be the page of a running program."""
    try:
        return os.lstat(path).st_uid != os.geteuid()
    except OSError:
        return False


def list_pages(directory=None):
    """The pages in `directory`, by default in the usual one."""
    directory = os.path.abspath(directory or page_directory())  # a name may begin with a dash
    listing = tool("list", directory)
    if listing.returncode != 0:
        raise Failure(3, listing.stderr.strip().replace("cachalot-page: ", ""))
    pages = []
    for line in listing.stdout.split("\n"):
        columns = line.split("\t")
        if len(columns) == 6:
            path, pid, life, state, session, program = columns
            path = os.path.join(directory, os.path.basename(path))  # the listing shows no control characters of the directory
            if life == "bad" and is_of_another(path):
                life = "foreign"
            pages.append(Page(path, int(pid), life, state, session, program))
    return pages


WRITES = "cachalot-page: writes "


def say_path(line):
    """Says where `cachalot-page report` is about to write."""
    if line.startswith(WRITES):
        say(f"cachalot: writing {printable(line[len(WRITES):-1])}")


def harvest_page(page, *options, hear=None):
    """Makes the report of a dead page, then removes the page unless something of it could not be written. Returns (the
    report's path or None if it existed, whether something is missing, which was said). `hear`: say_path, or None."""
    path, said = None, ""
    if page.state not in ("reported", "making"):  # `making`: the process was killed before it counted anything
        written = tool("report", page.path, *options, hear=hear)
        lines = [line for line in written.stderr.splitlines() if not line.startswith(WRITES)]
        path, said = written.stdout[:-1], "\n".join(lines).strip().replace("cachalot-page: ", "")
        if written.returncode != 0 and not path:
            if not os.path.lexists(page.path):
                return None, False  # another harvest has made the report
            raise Failure(1, said)
        for line in said.splitlines():
            say(f"cachalot: {printable(line)}")
        if written.returncode != 0:
            return path, True
    tool("remove", page.path)
    return path, bool(said)
