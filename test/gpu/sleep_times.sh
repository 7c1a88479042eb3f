#!/bin/sh
# sleep_times.sh BUILD CUDA [GIB [ROUNDS [BLOCK_MIB]]]: builds sleep_times.c and runs it behind BUILD/libcachalot.so. On one line a
# round: a sleep and a wake of GIB (16), beside plain copies of the same bytes to pinned memory and back.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
${CC:-cc} -std=c17 -D_GNU_SOURCE -O2 -I"$2/include" -L"$2/lib64/stubs" -o "$out/sleep_times" "$here/sleep_times.c" -lcuda -ldl
LD_PRELOAD="$1/libcachalot.so" CACHALOT_CONF=expandable_segments:True CACHALOT_OUTPUT="$out/report.json" \
    "$out/sleep_times" "${3:-16}" "${4:-5}" "${5:-64}"
python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["sleep"])' "$out/report.json"
