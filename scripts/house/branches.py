#!/usr/bin/env python3
"""branches.py BUILD FILE…: the processor may check returns and indirect branches of our x86-64 code, and finds nothing wrong.

A library without the note turns shadow stacks off for the whole process. A processor that tracks indirect branches ends a
program where one lands elsewhere than on endbr64. So each of our functions whose address is taken begins with it: by `lea`,
in relocated data, or in the table of dynamic symbols. jansson may be compiled without; the linker then leaves that mark out."""

import bisect
import pathlib
import re
import subprocess
import sys

OBJECTS = ("libcore.a.p", "libcachalot.so.p", "cachalot-page.p")
LEA = re.compile(r"\blea\s.*# ([0-9a-f]+) <")
RELOCATED = re.compile(r"R_X86_64_(?:RELATIVE|IRELATIVE)\s+([0-9a-f]+)$", re.M)
EXPORTED = re.compile(r": ([0-9a-f]+)\s+\d+ FUNC\s+(?:GLOBAL|WEAK)\s+DEFAULT\s+\d")
LANDING = re.compile(r"^\s*([0-9a-f]+):\s+endbr64", re.M)


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def noted(file):
    """What the file says of itself: IBT, SHSTK."""
    found = re.search(r"x86 feature: (.*)", output("readelf", "-nW", file))
    return set(found[1].split(", ")) if found else set()


def functions(file):
    return [(int(address, 16), name) for address, name in re.findall(r"^([0-9a-f]+) [tTwW] (\S+)$", output("nm", file), re.M)]


def taken(file, text):
    """The addresses that are taken; not all of them are of functions."""
    places = ((LEA, text), (RELOCATED, output("readelf", "-rW", file)), (EXPORTED, output("readelf", "--dyn-syms", "-W", file)))
    return {int(found[1], 16) for pattern, said in places for found in pattern.finditer(said)}


def problems(objects, files):
    own = set()
    for path in objects:
        own |= {name for _, name in functions(path)}
        if noted(path) != {"IBT", "SHSTK"}:
            yield f"{path}: not marked as fit for indirect branch tracking and shadow stacks"
    for file in files:
        if "SHSTK" not in noted(file):
            yield f"{file}: turns shadow stacks off"
        text = output("objdump", "-d", "--no-show-raw-insn", file)
        landing = {int(address, 16) for address in LANDING.findall(text)}
        ours = sorted(place for place in functions(file) if place[1] in own)
        if not landing or not ours:
            yield f"{file}: no function of ours was found"
        for address in sorted(taken(file, text) - landing):
            place = bisect.bisect_left(ours, (address, ""))
            if place < len(ours) and ours[place][0] == address:
                yield f"{file}: {ours[place][1]} has no endbr64, and its address is taken"


def main(build, *files):
    objects = [path for folder in OBJECTS for path in sorted(pathlib.Path(build, folder).glob("*.o"))]
    found = list(problems(objects, files))
    print("\n".join(found))
    return 1 if found or not objects else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
