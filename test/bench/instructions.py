#!/usr/bin/env python3
"""Instructions per hit, counted by callgrind on the simulated device, against what instructions.json records.

The count covers libcachalot.so and the libc functions that it calls, in the thread of the program. Two runs with different numbers of operations are
subtracted, so that the start of the program cancels out. Call sites are off (CACHALOT_SITES=0): looks at them are not counted.
The test fails when an operation grew by more than 10 %.
--record writes the figures of this build into instructions.json."""

import argparse
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile

from kit import BUILD, HERE, Failed, environment

RECORD = HERE / "instructions.json"
FEW, MANY = 1000, 3000
MOST = 0.10
LIMIT = 300  # per pair through the hook of a shared cudart
OPERATIONS = {
    "small": "cudaMalloc + cudaFree, 4 KiB",
    "large": "cudaMalloc + cudaFree, 20 MiB",
    "replaced": "cudaMalloc + cudaFree, 3 to 26 MiB, of 24 live blocks",
    "driver": "cuMemAlloc + cuMemFree, 4 KiB (as from a static cudart)",
    "recorded": "cudaMalloc + cudaFree, 4 KiB, with CACHALOT_EVENTS",
    "async": "cuMemAllocAsync + cuMemFreeAsync, passed on",
    "set": "cuMemsetD8Async",
    "copy": "cuMemcpyDtoDAsync",
    "launch": "cuLaunchKernel, a created stream",
    "launch_legacy": "cuLaunchKernel, the legacy default stream",
    "launch_thread": "cuLaunchKernel, the thread's default stream",
    "launch_ex": "cuLaunchKernelEx, programmatic",
    "launch_graph": "cuGraphLaunch",
}
MORE = {what: {"CACHALOT_SITES": "0"} for what in OPERATIONS}  # a sample comes at random
MORE["recorded"]["CACHALOT_EVENTS"] = "1000"
NOT_OURS = re.compile(r"/lib(cuda|cudart)\.so|/instructions$")


def ours(lines):
    """Instructions in libcachalot.so, and in what it calls outside of CUDA, of a callgrind file."""
    total, own, callee, expect = 0, False, "", False
    for line in lines:
        line = line.rstrip("\n")
        if line.startswith("ob="):
            own = "/libcachalot" in line
        elif line.startswith("cob="):
            callee = line[4:]
        elif line.startswith("calls="):
            expect = True
        elif line[:1].isdigit():
            counts = own and not (expect and ("/libcachalot" in callee or not callee or NOT_OURS.search(callee)))
            total += int((line.split() + ["0"])[1]) if counts else 0  # a cost of 0 may be left out
            if expect:
                expect, callee = False, ""
    return total


def count(what, times, library):
    with tempfile.TemporaryDirectory(prefix="cachalot-") as folder:
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", "--separate-threads=yes",
             "--compress-strings=no", "--compress-pos=no", str(BUILD / "test/bench/instructions"), what, str(times)],
            env={**environment(library, capacity="1G"), **MORE.get(what, {})}, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise Failed(f"{what}: exit code {done.returncode}: {done.stderr[-300:]}")
        with open(f"{folder}/out-01", encoding="utf-8") as main_thread:
            return ours(main_thread)


def measure(library):
    return {what: round((count(what, MANY, library) - count(what, FEW, library)) / (MANY - FEW), 1)
            for what in OPERATIONS}


def compiler():
    for line in subprocess.run(["readelf", "-p", ".comment", str(BUILD / "libcachalot.so")],
                               capture_output=True, text=True, check=False).stdout.splitlines():
        if "]" in line:
            return line.split("]", 1)[1].strip()
    return "unknown"


def judge(found, recorded):
    """(line, good) for each operation."""
    for what, now in found.items():
        was = recorded["instructions"].get(what)
        said = f"{OPERATIONS[what]}: {now:g} instructions, recorded {was}"
        if was is None:
            yield f"{said}; record it: test/bench/instructions.py --record", False
            continue
        change = now / was - 1
        if change < -MOST:
            said += f"; {-change:.0%} fewer: please record, test/bench/instructions.py --record"
        elif change > MOST:
            said += f"; {change:.0%} more, at most {MOST:.0%} are allowed"
        if what == "small" and now > LIMIT:
            said += f" (goal: {LIMIT})"
        yield said, change <= MOST


def reason_to_skip(options):
    if platform.machine() != "x86_64":
        return "the recorded figures are for x86-64"
    if options.buildtype != "release":
        return f"this is a {options.buildtype} build"
    if not shutil.which("valgrind"):
        return "no valgrind"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the figures of this build into instructions.json")
    parser.add_argument("--buildtype", default="release")
    parser.add_argument("--library", default=BUILD / "libcachalot.so")
    options = parser.parse_args()
    if reason := reason_to_skip(options):
        print(f"1..0 # SKIP {reason}")
        return 0
    found = measure(options.library)
    if options.record:
        new = {"compiler": compiler(), "instructions": found}
        RECORD.write_text(json.dumps(new, indent=2) + "\n")
        print(RECORD.read_text(), end="")
        return 0
    recorded = json.loads(RECORD.read_text())
    print(f"1..{len(found)}\n# recorded with {recorded['compiler']}; this is {compiler()}")
    bad = 0
    for number, (line, good) in enumerate(judge(found, recorded), 1):
        print(f"{'ok' if good else 'not ok'} {number} - {line}")
        bad |= not good
    return bad


if __name__ == "__main__":
    sys.exit(main())
