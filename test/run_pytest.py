"""Runs pytest and speaks TAP, so that `meson test` counts each case: run_pytest.py FILE… [pytest options]."""

import os
import re
import shutil
import sys
import tempfile

import pytest

os.environ.pop("PYTHONUNBUFFERED", None)  # most users have none, and it hides what is written late
os.environ.pop("GITHUB_ACTIONS", None)  # there verdicts are coloured


class Tap:
    """One line per case; what failed goes to stderr, where meson keeps it."""

    def __init__(self, stream):
        self.stream = stream
        self.count = 0

    def pytest_addoption(self, parser):
        """Of the plug-in that is left out, and asked for where an assertion is explained."""
        parser.addoption("--verbose", action="count", default=0)

    def line(self, text):
        print(text, file=self.stream, flush=True)

    def pytest_configure(self, config):
        config.option.verbose = 0  # the terminal's, which is off; what explains a failed comparison asks for it

    def pytest_runtest_logreport(self, report):
        file, _, case = report.nodeid.partition("::")
        name = f"{os.path.basename(file)}::{case}".replace("#", "")
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else "expected to fail"
            self.case("ok", f"{name} # SKIP {reason.removeprefix('Skipped: ')}")
        elif report.failed:
            self.case("not ok", name if report.when == "call" else f"{name} ({report.when})")
            print(report.longreprtext, file=sys.stderr)
        elif report.when == "call":
            self.case("ok", name)

    def pytest_collectreport(self, report):
        if report.failed:
            self.case("not ok", f"{report.nodeid} cannot be collected")
            print(report.longreprtext, file=sys.stderr)
        elif report.skipped and isinstance(report.longrepr, tuple):
            self.case("ok", f"{report.nodeid} # SKIP {report.longrepr[2].removeprefix('Skipped: ')}")

    def case(self, verdict, text):
        self.count += 1
        self.line(f"{verdict} {self.count} - " + " ".join(text.split()))


SPLITS = re.compile(r"[\s:]")  # LD_PRELOAD, and shell commands in tests, end a path there


def leave_temporary_folder():
    """Temporary files go elsewhere if a blank or a colon is in the path of their folder."""
    if SPLITS.search(tempfile.gettempdir()):
        os.environ["TMPDIR"] = next(place for place in ("/tmp", "/var/tmp", "/dev/shm") if os.access(place, os.W_OK))
        tempfile.tempdir = None


def link_to_build():
    """A build below a folder with a blank is called by a link. Returns the folder of the link, or None. (Meson runs tests in
    the folder of the build.)"""
    build = os.getcwd()
    if not SPLITS.search(build):
        return None
    folder = tempfile.mkdtemp(prefix="cachalot-build-", dir="/dev/shm")
    os.symlink(build, f"{folder}/build")
    for name in [name for name in os.environ if name.startswith("CACHALOT_")]:
        os.environ[name] = os.environ[name].replace(build, f"{folder}/build")
    return folder


def main(arguments):
    sys.dont_write_bytecode = True
    leave_temporary_folder()
    link = link_to_build()
    try:
        return run(arguments)
    finally:
        if link:
            shutil.rmtree(link)


def run(arguments):
    tap = Tap(os.fdopen(os.dup(1), "w"))
    code = pytest.main(["-p", "no:terminal", "-p", "no:cacheprovider", *arguments], plugins=[tap])
    tap.line(f"1..{tap.count}" if tap.count else "1..0 # SKIP no tests")
    return 0 if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) else int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
