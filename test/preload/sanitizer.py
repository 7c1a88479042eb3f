"""Builds with a sanitizer: its runtime comes first in LD_PRELOAD, and what it finds goes to files, so that
no test has to look for it: any finding fails the test in which it came up."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CACHALOT_BUILD", ROOT / "build")).absolute()
RUNTIME = re.compile(r"=> (\S*/lib(asan|tsan)\.so\S*)")
# Signals are the program's own, as natively. A leak is a leak only in what is sanitized (Python is not).
COMMON = "handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0"
OPTIONS = {
    "asan": f"{COMMON}:detect_leaks=%d",
    "lsan": f"suppressions={pathlib.Path(__file__).with_name('leaks.supp')}:print_suppressions=0",
    "tsan": f"{COMMON}:die_after_fork=0:atexit_sleep_ms=0",
    "ubsan": "print_stacktrace=1",
}


def find_runtime():
    """(kind, path) of the sanitizer that the library was built with."""
    needed = subprocess.run(["ldd", BUILD / "libcachalot.so"], capture_output=True, text=True, check=False).stdout
    found = RUNTIME.search(needed)
    return (found[2], found[1]) if found else (None, None)


KIND, PATH = find_runtime()
PRELOAD = [PATH] if PATH else []
SLOWER = 3 if PATH else 1


def unless_sanitized(reason, kinds=("asan", "tsan")):
    """Marks a case that makes no sense with a sanitizer."""
    return pytest.mark.skipif(KIND in kinds, reason=f"{KIND}: {reason}")


class Findings:
    """A folder for the findings of one test."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cachalot-findings-")) if KIND else None
        self.leaks = True

    def environment(self, leaks):
        """The variables that a sanitized program needs; `leaks`: to look for leaks, too."""
        if not KIND:
            return {}
        options = {name: value.replace("%d", str(int(leaks and self.leaks))) + f":log_path={self.folder}/{name}"
                   for name, value in OPTIONS.items()}
        return {f"{name.upper()}_OPTIONS": value for name, value in options.items()}

    def close(self):
        """Fails if there are any."""
        if not KIND:
            return
        texts = [path.read_text(errors="replace") for path in sorted(self.folder.iterdir())]
        shutil.rmtree(self.folder)
        assert not texts, "\n".join(texts)
