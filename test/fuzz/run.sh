#!/bin/sh
# run.sh TARGET CORPUS SECONDS [KEEP]: libFuzzer from the kept inputs on. What is new goes to the folder KEEP, a
# finding to the working directory. Without KEEP it tries the same each time: a test may not find by chance.
set -eu
new=${4:-$(mktemp -d)}
seed=${4:+0} # 0: another one each time
[ -n "${4:-}" ] || trap 'rm -rf "$new"' EXIT
mkdir -p "$new"
"$1" -seed="${seed:-1}" -max_total_time="$3" -timeout=60 -rss_limit_mb=1024 -print_final_stats=1 "$new" "$2" 2>&1 | tail -n 40 >"$new.log" || true
status=0
grep -q '^stat::number_of_executed_units' "$new.log" && ! grep -q 'ERROR\|SUMMARY\|deadly signal' "$new.log" || status=1
[ "$status" = 0 ] && grep '^stat::number_of_executed_units' "$new.log" || cat "$new.log"
rm -f "$new.log"
exit "$status"
