"""What all commands share: errors, safe output, opening of files, and where the library and its tools are."""

import contextlib
import glob
import os
import re
import signal
import stat
import subprocess
import sys

HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))  # the folder of `cachalot`
ROOT = os.path.dirname(HERE)

INHERITED_SIGCHLD = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # while it is ignored, waiting for a child gives no exit code


class Failure(Exception):
    """An error for the user, with its exit code."""

    def __init__(self, code, text):
        super().__init__(printable(text))
        self.code = code


COMMAND = re.compile(r"(##[A-Za-z]*)\[")  # of a CI runner, anywhere in a line: ##[error], ##vso[, ##teamcity[
FIRST_COMMAND = re.compile(r"^([ \t]*:):")  # of GitHub's, at the begin of a line
TAIL = 80  # characters of a line that may become part of a command


def printable(text):
    """`text` without characters that move a terminal's cursor or reorder a line, and without a runner's commands."""
    return COMMAND.sub(r"\1?", "".join(c if c.isprintable() else "?" for c in str(text)))


class Guarded:
    """A stream for people and logs. Whatever is printed, no text of a report commands a terminal or a CI runner. What is
    meant to do so goes to `unguarded(stream)`."""

    def __init__(self, stream):
        self.unguarded, self.line = stream, ""  # `line`: what the current line has so far

    def __getattr__(self, name):
        return getattr(self.unguarded, name)

    def write(self, text):
        pieces = []
        for piece in re.findall("[^\n]*\n|[^\n]+", text):
            line = self.line + "".join(c if c.isprintable() or c in "\n\t" else "?" for c in piece)
            line = FIRST_COMMAND.sub(r"\1?", COMMAND.sub(r"\1?", line))
            pieces.append(line[len(self.line):])
            self.line = "" if line.endswith("\n") else line if len(line) < TAIL else "-" + line[1 - TAIL:]
        self.unguarded.write("".join(pieces))
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)


def unguarded(stream):
    return getattr(stream, "unguarded", stream)


def meant(word, known):
    """`; did you mean --json?`, if one of the known words is like it."""
    from difflib import get_close_matches  # only where something is wrong
    close = get_close_matches(word, known, 1)
    return f"; did you mean {close[0]}?" if close else ""


def say(text):
    """Prints a line on stderr. A terminal that was closed is no error: the command has more to do."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)


def show_progress(text=""):
    """Replaces the line of progress on a terminal; an empty text removes it."""
    if sys.stderr.isatty():
        with contextlib.suppress(OSError):
            print(f"\r\033[K{text and 'cachalot: '}{text}", end="", file=unguarded(sys.stderr), flush=True)


def open_at_once(path):
    """Opens a file for reading without waiting for the other end of a pipe."""
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY))


def open_regular(path):
    """Opens a file that is read more than once, and refuses a pipe, which cannot be."""
    file = open_at_once(path)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise Failure(3, f"{path} is a pipe or a device: it is read more than once, so copy it to a file first")
    return file


def first_file(candidates):
    return next((path for path in candidates if os.path.isfile(path)), None)


def installed(*patterns):
    return [path for p in patterns for path in sorted(glob.glob(os.path.join(ROOT, p)))]


def find_library():
    """The library to preload: CACHALOT_LIBRARY, the installed one, or that of the build tree."""
    named = os.environ.get("CACHALOT_LIBRARY")
    if named:
        if not os.path.isfile(named):
            raise Failure(125, f"CACHALOT_LIBRARY={named} is not a file")
        return os.path.abspath(named)
    name = "libcachalot.so"
    found = first_file([os.path.join(HERE, name),
                        *installed(f"lib/{name}", f"lib/*/{name}", f"lib64/{name}", f"build/{name}")])
    if found is None:
        raise Failure(125, f"{name} was not found beside {HERE}; build it (`meson setup build && "
                           "ninja -C build`) or set CACHALOT_LIBRARY")
    return found


def find_tool(name="cachalot-page"):
    """The path of one of our programs, beside the library or beside the command."""
    candidates = [os.path.join(HERE, name)]
    named = os.environ.get("CACHALOT_LIBRARY")
    if named:
        candidates.insert(0, os.path.join(os.path.dirname(os.path.abspath(named)), name))
    candidates += installed(f"libexec/{name}", f"libexec/cachalot/{name}", f"build/{name}")
    found = first_file(candidates)
    if found is None:
        raise Failure(125, f"{name} was not found; build it with `ninja -C build`")
    return found


def tool(*arguments, hear=None):
    """Runs cachalot-page and returns the finished process. Its texts keep bytes that are no UTF-8, so that names can be
    used again. `hear` is called with each line of its stderr at once."""
    # The tool must not run under the cache, even if this command does.
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    try:
        with subprocess.Popen([find_tool(), *arguments], stdin=subprocess.DEVNULL, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, errors="surrogateescape") as running:
            lines = []
            for line in running.stderr if hear else ():
                hear(line)
                lines.append(line)
            out, errors = running.communicate()
        return subprocess.CompletedProcess(running.args, running.returncode, out, "".join(lines) + errors)
    except OSError as error:
        raise Failure(125, f"cachalot-page cannot be run: {error}") from error


def page_directory():
    return os.environ.get("CACHALOT_PAGE_DIR") or f"/dev/shm/cachalot-{os.geteuid()}"
