#!/usr/bin/env bash
# guess: a TAP test that prints no plan (1..N) is an error to Meson, and so is one that prints nothing.
# found (2026-11-30, Meson 1.12.1; 1.0.1 the same): without a plan it is OK, whatever is missing. One that prints nothing and exits
#   with 0 is skipped. `meson test` exits with 0.
. "$(dirname "$0")/install.sh"
install meson==1.12.1
cat >"$work/meson.build" <<'MESON'
project('t')
sh = find_program('sh')
test('without plan', sh, args: ['-c', 'echo ok 1 - a; exit 0'], protocol: 'tap')
test('without output', sh, args: ['-c', 'exit 0'], protocol: 'tap')
MESON
python3 -m mesonbuild.mesonmain setup "$work/b" "$work" >/dev/null || exit 2
python3 -m mesonbuild.mesonmain test -C "$work/b" >/dev/null 2>&1 && code=0 || code=$?
{
    python3 -c 'import json, sys
for name, result in sorted((test["name"].split(":")[-1].strip(), test["result"]) for test in map(json.loads, open(sys.argv[1]))):
    print(name, result)' "$work/b/meson-logs/testlog.json"
    echo "exit code $code"
} | same "without output SKIP
without plan OK
exit code 0"
