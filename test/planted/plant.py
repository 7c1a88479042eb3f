#!/usr/bin/env python3
"""plant.py [FILE…] list: NAME FILE of each bug. plant.py ROOT NAME OUTPUT: the file with the bug in it. Fails where the source has
changed so that a text is not there exactly once."""

import pathlib
import sys

from bugs import BUGS


def planted(root, bug):
    text = pathlib.Path(root, bug.file).read_text(encoding="utf-8")
    for old, new in bug.changes:
        if text.count(old) != 1:
            sys.exit(f"{bug.name}: {bug.file} has this {text.count(old)} times, not once:\n{old}")
        text = text.replace(old, new)
    return text


def main(arguments):
    if arguments[-1] == "list":
        print("\n".join(f"{bug.name} {bug.file}" for bug in BUGS))
        return
    root, name, output = arguments[-3:]
    (bug,) = [bug for bug in BUGS if bug.name == name]
    pathlib.Path(output).write_text(planted(root, bug), encoding="utf-8")


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main(sys.argv[1:])
