"""What the commands share: errors, library and tool, texts that are safe to print."""

import contextlib
import glob
import os
import signal
import stat
import subprocess
import sys

HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))  # where the command itself is
ROOT = os.path.dirname(HERE)

INHERITED_SIGCHLD = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, nobody would be told how a command ended


class Failure(Exception):
    """An error to be shown to the user, with the exit code."""

    def __init__(self, code, text):
        super().__init__(printable(text))
        self.code = code


def printable(text):
    """`text` without what could move a terminal's cursor or reorder a line."""
    return "".join(c if c.isprintable() else "?" for c in str(text))


def say(text):
    """A line on stderr, where that can still be written to: of a terminal that was closed more is left to be done."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)


def show_progress(text=""):
    """On a terminal, in place of what was shown before; nothing: that goes."""
    if sys.stderr.isatty():
        with contextlib.suppress(OSError):
            print(f"\r\033[K{text and 'cachalot: '}{text}", end="", file=sys.stderr, flush=True)


def open_at_once(path):
    """The file, open to be read: a pipe's other end is not waited for."""
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY))


def open_regular(path):
    """The same of what is read more than once, which a pipe cannot be."""
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
    """The library to preload: CACHALOT_LIBRARY, the installed one, the build tree's."""
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
    """A program of ours: beside the library or the script."""
    candidates = [os.path.join(HERE, name)]
    named = os.environ.get("CACHALOT_LIBRARY")
    if named:
        candidates.insert(0, os.path.join(os.path.dirname(os.path.abspath(named)), name))
    candidates += installed(f"libexec/{name}", f"libexec/cachalot/{name}", f"build/{name}")
    found = first_file(candidates)
    if found is None:
        raise Failure(125, f"{name} was not found; build it with `ninja -C build`")
    return found


def tool(*arguments):
    """Runs cachalot-page; returns the finished process with its texts, of which names can be used again."""
    # Not under the cache, whatever started us.
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    try:
        return subprocess.run([find_tool(), *arguments], stdin=subprocess.DEVNULL, env=environment,
                              capture_output=True, text=True, errors="surrogateescape", check=False)
    except OSError as error:
        raise Failure(125, f"cachalot-page cannot be run: {error}") from error


def page_directory():
    return os.environ.get("CACHALOT_PAGE_DIR") or f"/dev/shm/cachalot-{os.geteuid()}"
