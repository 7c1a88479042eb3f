"""What the benchmark and the gate share: where things lie, and the environment of a measured program."""

import ctypes
import json
import os
import pathlib
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = pathlib.Path(os.environ.get("CACHALOT_BUILD", ROOT / "build")).resolve()
OURS = ("CACHALOT_", "PYTORCH_", "LD_PRELOAD")
PAGES = tempfile.TemporaryDirectory(prefix="cachalot-bench-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
ADDR_NO_RANDOMIZE = 0x0040000


class Failed(Exception):
    """A program did not do what it should."""


def environment(library=None, simulated=True, capacity="64G"):
    """For a program with `library` in front, or nothing."""
    found = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    if simulated:
        found["LD_LIBRARY_PATH"] = str(BUILD / "test/sim")
        found["CACHALOT_SIM_CAPACITY"] = capacity
    if library:
        if not pathlib.Path(library).exists():
            raise Failed(f"{library}: not built")  # ld.so would go on without it
        found["LD_PRELOAD"] = str(library)
        found["CACHALOT_OUTPUT"] = "/dev/null"
        for page in pathlib.Path(PAGES.name).iterdir():
            page.unlink()  # no program finds what others left
        found["CACHALOT_PAGE_DIR"] = PAGES.name
    return found


def fixed_addresses():
    """In the child: the same addresses in every run, where that is allowed."""
    ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE)


def run(command, env, timeout=300, **more):
    """The lines of JSON that a program prints."""
    done = subprocess.run([str(word) for word in command], env=env, capture_output=True, text=True,
                          timeout=timeout, check=False, **more)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command[:4]))}: exit code {done.returncode}: {done.stderr[-300:].strip()}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
