#!/usr/bin/env python3
"""Adds up what `meson test` ran: count_tests.py FAILED WHAT=testlog.json… ; WHAT=skipped: REASON is one skip.

Cases inside a TAP test count one by one. FAILED=1: a run failed, so at least one failure is reported.
"""

import json
import re
import sys

CASE = re.compile(r"^(not )?ok\b(.*)$", re.MULTILINE)


def cases(test):
    """(verdict, name) of each case of one meson test."""
    found = []
    for bad, rest in CASE.findall(test.get("stdout") or ""):
        name, reason = (re.split(r"(?:^|\s)#\s", re.sub(r"^[\s\d-]+", "", rest), maxsplit=1) + [""])[:2]
        skipped = re.match(r"skip\b", reason, re.IGNORECASE)
        name = f"{name[:70]}… {reason}" if len(name) > 70 else f"{name} {reason}".strip()
        found.append(("skipped" if skipped else "failed" if bad else "passed", name))
    result = test["result"]
    if result == "SKIP":
        return found or [("skipped", (test.get("stdout") or "").strip().rsplit("\n", 1)[-1])]
    if result == "OK":
        return found or [("passed", "")]
    if not any(verdict == "failed" for verdict, _ in found):
        found.append(("failed", result.lower()))
    return found


def main(arguments):
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for argument in arguments[1:]:
        what, _, log = argument.partition("=")
        if log.startswith("skipped: "):
            count["skipped"] += 1
            print(f"skipped: {what}: {log.removeprefix('skipped: ')}")
            continue
        with open(log, encoding="utf-8") as lines:
            for test in map(json.loads, lines):
                for verdict, name in cases(test):
                    count[verdict] += 1
                    if verdict != "passed":
                        print(f"{verdict}: {what}: {test['name']}: {name}")
    if arguments[0] != "0" and not count["failed"]:
        count["failed"] = 1
    print(", ".join(f"{n} {verdict}" for verdict, n in count.items()))
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
