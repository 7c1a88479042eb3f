#!/usr/bin/env python3
"""choose_tests.py FOLDER names|targets|list [WHAT…]: which tests of a configured build, one a line.

WHAT is a suite, a test, or a pattern of test names (`preload *`). A minus before it leaves those tests out, and a plus takes a
test that a minus left out. If every WHAT has a minus, all other tests are chosen. `names` prints the tests, `targets` what Ninja
builds for them, and `list` the suites with their tests."""

import fnmatch
import json
import os
import pathlib
import sys


class Unknown(Exception):
    """Nothing has this name."""


def suites_of(test):
    return [suite.partition(":")[2] for suite in test["suite"]]


def named(tests, what):
    """The names of the tests that `what` means."""
    found = {test["name"] for test in tests if what in suites_of(test)} or {test["name"] for test in tests if test["name"] == what}
    return found or set(fnmatch.filter([test["name"] for test in tests], what))


def choose(tests, wanted):
    """The tests; those that may take longest first, so that no processor waits for one of them at the end."""
    chosen = {test["name"] for test in tests} if all(what.startswith("-") for what in wanted) else set()
    for what in sorted(wanted, key=lambda what: " -+".find(what[0])):  # those without a sign first
        found = named(tests, what.lstrip("-+"))
        if not found and not what.startswith("-"):
            raise Unknown(what)
        chosen = chosen - found if what.startswith("-") else chosen | found
    return sorted((test for test in tests if test["name"] in chosen), key=lambda test: -test["timeout"])


def targets(folder, tests):
    """The files that the tests run or use, relative to the build."""
    files = {target["id"]: target["filename"] for target in load(folder, "targets")}
    root = os.path.realpath(folder)
    return sorted({os.path.relpath(os.path.join(os.path.realpath(os.path.dirname(file)), os.path.basename(file)), root)
                   for test in tests for name in test["depends"] for file in files[name]})


def load(folder, what):
    return json.loads(pathlib.Path(folder, f"meson-info/intro-{what}.json").read_text(encoding="utf-8"))


def main(folder, what, *wanted):
    tests = load(folder, "tests")
    if what == "list":
        for suite in dict.fromkeys(suites_of(test)[0] for test in tests):
            print(f"{suite}: {', '.join(test['name'] for test in tests if suites_of(test)[0] == suite)}")
        return 0
    try:
        chosen = choose(tests, wanted)
    except Unknown as unknown:
        print(f"cachalot: no test or suite is called {unknown}: scripts/test --list shows all", file=sys.stderr)
        return 2
    print("\n".join([test["name"] for test in chosen] if what == "names" else targets(folder, chosen)))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
