#!/usr/bin/env python3
"""Adds up what `meson test` ran: count_tests.py FAILED WHAT=testlog.json… ; WHAT=skipped: REASON is one skip.

Cases inside a TAP test count one by one. FAILED=1: a run failed, so at least one failure is reported. What failed is
printed last, after the end of what it said: of a long log, people are often shown only the end.
"""

import json
import re
import sys
from collections import Counter

CASE = re.compile(r"^(not )?ok\b(.*)$", re.MULTILINE)
TESTS_EXPLAINED = 5
LINES_EACH = 30


def cases(test):
    """(verdict, name, reason) of each case of one meson test."""
    found = []
    for bad, rest in CASE.findall(test.get("stdout") or ""):
        name, reason = (re.split(r"(?:^|\s)#\s", re.sub(r"^[\s\d-]+", "", rest), maxsplit=1) + [""])[:2]
        skipped = re.match(r"skip\b:?\s*", reason, re.IGNORECASE)
        verdict = "skipped" if skipped else "failed" if bad else "passed"
        found.append((verdict, name[:90].strip(), reason[skipped.end() :] if skipped else reason))
    result = test["result"]
    if result == "SKIP":
        return found or [("skipped", "", (test.get("stdout") or "").strip().rsplit("\n", 1)[-1])]
    if result == "OK":
        return found or [("passed", "", "")]
    if not any(verdict == "failed" for verdict, _, _ in found):
        found.append(("failed", result.lower(), ""))
    return found


def explain(what, test):
    """The end of what a failed test said."""
    said = (test.get("stderr") or "").strip() or (test.get("stdout") or "").strip()
    print(f"-- {what}: {test['name']} ended so:")
    print("\n".join(f"   {line[:200]}" for line in said.split("\n")[-LINES_EACH:]))


def main(arguments):
    count = Counter(passed=0, failed=0, skipped=0)
    skips, failures = Counter(), []
    for argument in arguments[1:]:
        what, _, log = argument.partition("=")
        if log.startswith("skipped: "):
            count["skipped"] += 1
            skips[what, "", log.removeprefix("skipped: ")] += 1
            continue
        with open(log, encoding="utf-8") as lines:
            for test in map(json.loads, lines):
                verdicts = cases(test)
                count.update(verdict for verdict, _, _ in verdicts)
                skips.update((what, test["name"], reason) for verdict, _, reason in verdicts if verdict == "skipped")
                names = [name for verdict, name, _ in verdicts if verdict == "failed"]
                if names:
                    failures.append((what, test, names))
    for (what, name, reason), times in skips.items():
        print(f"skipped: {what}: {name + ': ' if name else ''}{reason}{f' ({times} cases)' if times > 1 else ''}")
    for what, test, _ in failures[:TESTS_EXPLAINED]:
        explain(what, test)
    for what, test, names in failures:
        for name in names:
            print(f"failed: {what}: {test['name']}: {name}")
    if arguments[0] != "0" and not count["failed"]:
        count["failed"] = 1
    print(", ".join(f"{n} {verdict}" for verdict, n in count.items()))
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
