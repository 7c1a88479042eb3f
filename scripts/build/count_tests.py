#!/usr/bin/env python3
"""Adds up what `meson test` ran: count_tests.py FAILED NOT-RUN WHAT=testlog.json… ; WHAT=skipped: REASON is one skip.
count_tests.py suites testlog.json: the seconds of each suite.

Each case of a TAP test counts as one. A TAP test that ends early counts as failed: Meson takes it for passed if its exit code
is 0, or for skipped if it printed nothing. FAILED=1: a run failed, so the count has at least one failure. Failures are
printed last, each after the end of its output, because logs are often shown from their end. Then come NOT-RUN, a text that
says which tests were left out, and the skipped cases by kind of reason.
"""

import json
import re
import sys
from collections import Counter

PLAN = re.compile(r"^1\.\.\d+", re.MULTILINE)
CASE = re.compile(r"^(not )?ok\b(.*)$", re.MULTILINE)
KINDS = (  # of reasons to skip a case, the first that is found
    ("a file is missing", r"^no /"),
    ("needs root or a second user", r"root|owner|\busers?\b|^mounts$"),
    ("this machine does not allow it", r"mount|random bits|namespaces|priorities|in use|traced|cannot be|setarch|x86-64"),
    ("not in this kind of build", r"[at]san\b|sanitizer|processor|build\b|built\b|each step"),
    ("a program or package is missing", r"not here|^no [A-Za-z]|apt-get|pip install|could not import|does not run|packages|headers"),
)
OTHER = "no reason given"
TESTS_EXPLAINED = 5
LINES_EACH = 30
NAMES_EACH = 20


def cases(test):
    """(verdict, name, reason) of each case of one meson test."""
    found = []
    for bad, rest in CASE.findall(test.get("stdout") or ""):
        name, reason = (re.split(r"(?:^|\s)#\s", re.sub(r"^[\s\d-]+", "", rest), maxsplit=1) + [""])[:2]
        skipped = re.match(r"skip\b:?\s*", reason, re.IGNORECASE)
        verdict = "skipped" if skipped else "failed" if bad else "passed"
        found.append((verdict, name[:90].strip(), reason[skipped.end() :] if skipped else reason))
    result = test["result"]
    said_nothing = not found and result == "SKIP" and test["returncode"] == 0
    if (found and result == "OK" or said_nothing) and not PLAN.search(test.get("stdout") or ""):
        return [*found, ("failed", "ended early, without a plan", "")]
    if result == "SKIP":
        return found or [("skipped", "", (test.get("stdout") or "").strip().rsplit("\n", 1)[-1])]
    if result == "OK":
        return found or [("passed", "", "")]
    if not any(verdict == "failed" for verdict, _, _ in found):
        found.append(("failed", result.lower(), ""))
    return found


def kind_of(reason):
    return next((kind for kind, pattern in KINDS if re.search(pattern, reason)), OTHER)


def read(log):
    with open(log, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def seconds(log):
    """Of each suite: its tests run side by side, so the sum is more than the time that passed."""
    suites = Counter()
    for test in read(log):
        suites[test["name"].rpartition(" / ")[0].partition(":")[2].partition("+")[0]] += test["duration"]
    return "   seconds of each suite's tests: " + ", ".join(f"{name} {time:.0f}" for name, time in suites.most_common())


def explain(what, test):
    """The end of what a failed test said."""
    said = (test.get("stderr") or "").strip() or (test.get("stdout") or "").strip()
    print(f"-- {what}: {test['name']} ended so:")
    print("\n".join(f"   {line[:200]}" for line in said.split("\n")[-LINES_EACH:]))


def main(arguments):
    if arguments[0] == "suites":
        print(seconds(arguments[1]))
        return 0
    failed, not_run, *logs = arguments
    count = Counter(passed=0, failed=0, skipped=0)
    skips, failures = Counter(), []
    for argument in logs:
        what, _, log = argument.partition("=")
        if log.startswith("skipped: "):
            count["skipped"] += 1
            skips[what, "", log.removeprefix("skipped: ")] += 1
            continue
        for test in read(log):
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
        for name in names[:NAMES_EACH]:
            print(f"failed: {what}: {test['name']}: {name}")
        if len(names) > NAMES_EACH:
            print(f"failed: {what}: {test['name']}: {len(names) - NAMES_EACH} more")
    if failed != "0" and not count["failed"]:
        count["failed"] = 1
    print(f"Not run: {not_run}" if not_run else "Not run: nothing.")
    kinds = Counter()
    for (_, _, reason), times in skips.items():
        kinds[kind_of(reason)] += times
    if kinds:
        print("Skipped, by kind: " + "; ".join(f"{times} {kind}" for kind, times in kinds.most_common()))
    print(", ".join(f"{n} {verdict}" for verdict, n in count.items()))
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
