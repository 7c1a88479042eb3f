#!/usr/bin/env python3
"""includes.py ROOT: which folder may include what (interpose → allocator → stats, nothing back)."""

import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.MULTILINE)
# What each folder may include of the project, and which libraries, by pattern.
PROJECT = {
    "stats": r"stats/.*",
    "allocator": r"(allocator|stats)/.*",
    "interpose": r"(interpose|stats)/.*|allocator/(allocator|share|reuse/lane|base/\w+)\.h",
}
FOREIGN = re.compile(r"cuda.*|jansson\.h|cmocka\.h|nv.*")
ALLOWED = {"stats": ("jansson.h", "stats/(report|output)/"), "interpose": ("cuda.h", "")}
# The core asks nothing of its surroundings: no environment, no files, no processes.
CORE_CALLS = re.compile(r"\b(getenv|secure_getenv|fopen|open|fprintf|printf|puts|exit|abort|system|fork)\s*\(")


def problems(root, folder):
    for path in sorted((root / folder).rglob("*.[chS]")):
        text = path.read_text(encoding="utf-8")
        for kind, name in INCLUDE.findall(text):
            library, where = ALLOWED.get(folder, ("", ""))
            if kind == '"' and not re.fullmatch(PROJECT[folder], name):
                yield f"{path}: may not include {name}"
            if kind == "<" and FOREIGN.fullmatch(name) and (name != library or not re.search(where, str(path))):
                yield f"{path}: may not include <{name}>"
        if folder == "allocator":
            for call in CORE_CALLS.findall(text):
                yield f"{path}: the allocator has no business with {call}()"


def main(root):
    found = [line for folder in PROJECT for line in problems(pathlib.Path(root), folder)]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
