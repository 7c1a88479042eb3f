#!/usr/bin/env bash
# guess: Meson's JUnit file shows a TAP test that was killed, or that ran fewer cases than planned, as an error.
# found (2026-11-30, Meson 1.12.1; 1.0.1 the same): the file has the cases that were printed, all as passed, and errors="0".
#   Only testlog.json, the exit code and the text on the terminal say ERROR.
. "$(dirname "$0")/install.sh"
install meson==1.12.1
cat >"$work/meson.build" <<'MESON'
project('t')
sh = find_program('sh')
test('killed', sh, args: ['-c', 'echo 1..2; echo ok 1 - a; kill -9 $$'], protocol: 'tap')
test('short', sh, args: ['-c', 'echo 1..5; echo ok 1 - a'], protocol: 'tap')
MESON
meson() {
    python3 -m mesonbuild.mesonmain "$@" >/dev/null 2>&1
}
meson setup "$work/b" "$work" || exit 2
meson test -C "$work/b" && echo "exit code 0" || true
python3 - "$work/b/meson-logs" <<'PYTHON' | same "testlog.json: ['ERROR', 'ERROR']
JUnit: errors 0 failures 0; killed: ['a passed'], short: ['a passed']"
import json, sys
from xml.etree import ElementTree
print("testlog.json:", sorted(json.loads(line)["result"] for line in open(sys.argv[1] + "/testlog.json")))
root = ElementTree.parse(sys.argv[1] + "/testlog.junit.xml").getroot()
suites = sorted((suite.get("name").split(".")[-1].split(":")[-1], [case.get("name").split()[-1] + (" failed" if len(case) else " passed") for case in suite.iter("testcase")])
                for suite in root.iter("testsuite"))
print("JUnit: errors", root.get("errors"), "failures", root.get("failures") + ";", ", ".join(f"{name}: {cases}" for name, cases in suites))
PYTHON
