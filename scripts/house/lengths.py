#!/usr/bin/env python3
"""lengths.py ROOT: files of at most 600 lines, functions of at most 60, headers of at most 150 lines of code (no
blanks, comments, or entries of an X-macro list), and a room's README.md of at most 600 words.

One noun is one file, and one header: the limits leave room for that. clang-format checks the columns."""

import os
import pathlib
import re
import sys

FOLDERS = ("stats", "allocator", "interpose", "scripts", "test")
FILE, FUNCTION, HEADER, README = 600, 60, 150, 600
NO_SOURCES = re.compile(r"__pycache__|corpus|\.(hypothesis|pytest_cache)")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
ENTRY = re.compile(r"^\s*X\(.*$", re.MULTILINE)


def code_lines(text):
    text = ENTRY.sub("", COMMENT.sub("", text))
    return sum(1 for line in text.split("\n") if line.strip(" \t\\"))


def functions(lines):
    """(name, length) of each function: from its `{` in column 0 to its `}`; clang-format puts them there."""
    start = None
    for number, line in enumerate(lines):
        if line == "{":
            start = number
        elif line == "}" and start is not None:
            name = next((m[1] for back in range(start - 1, max(start - 6, -1), -1)
                         if (m := re.search(r"(\w+)\(", lines[back]))), "?")
            yield name, number - start + 1
            start = None


def problems(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        if path.name == "README.md" and "test" not in path.parts and len(text.split()) > README:
            yield f"{path}: {len(text.split())} words, at most {README}"
        return
    lines = text.split("\n")
    if len(lines) - 1 > FILE:
        yield f"{path}: {len(lines) - 1} lines, at most {FILE}"
    if path.suffix == ".h" and code_lines(text) > HEADER:
        yield f"{path}: {code_lines(text)} lines of code, at most {HEADER} in a header"
    if path.suffix in (".c", ".h"):
        for name, length in functions(lines):
            if length > FUNCTION:
                yield f"{path}: {name} has {length} lines, at most {FUNCTION}"


def main(root):
    os.chdir(root)
    paths = (p for f in FOLDERS for p in sorted(pathlib.Path(f).rglob("*")))
    kinds = {".c", ".h", ".py", ".sh", ".S", ".md", ""}
    found = [line for p in paths if p.is_file() and p.suffix in kinds and not any(NO_SOURCES.match(part) for part in p.parts)
             for line in problems(p)]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
