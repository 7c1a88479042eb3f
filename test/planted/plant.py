#!/usr/bin/env python3
"""plant.py [FILE…] list: NAME FILE PROGRAM of each bug, for the build. plant.py ROOT FOLDER: writes each changed file to FOLDER/NAME.c.
Fails where a source has changed so that a text is not there exactly once."""

import pathlib
import sys

from bugs import BUGS


def planted(root, bug):
    """The text of the file with the bug in it, or None."""
    text = pathlib.Path(root, bug.file).read_text(encoding="utf-8")
    for old, new in bug.changes:
        if text.count(old) != 1:
            print(f"{bug.name}: {bug.file} has this {text.count(old)} times, not once:\n{old}", file=sys.stderr)
            return None
        text = text.replace(old, new)
    return text


def write(path, text):
    """A file that is the same keeps its time, and what is made from it is not made again."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def main(arguments):
    if arguments[-1] == "list":  # the files are for Meson, which configures anew when they change
        print("\n".join(f"{bug.name} {bug.file} {bug.program}" for bug in BUGS))
        return 0
    root, folder = arguments
    texts = {bug.name: planted(root, bug) for bug in BUGS}
    if None in texts.values():
        return 1
    for name, text in texts.items():
        write(pathlib.Path(folder, f"{name}.c"), text)
    return 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.exit(main(sys.argv[1:]))
