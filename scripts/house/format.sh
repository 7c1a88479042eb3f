#!/bin/sh
# format.sh ROOT [fix]: all C is as .clang-format says. clang-format 14 decides (others differ); 77 without one.
set -eu
cd "$1"
format=$(command -v clang-format-14 || true)
[ -n "$format" ] || { echo "no clang-format-14"; exit 77; }
find stats allocator interpose scripts test -name '*.[ch]' -print0 | sort -z |
    if [ "${2:-}" = fix ]; then xargs -0 "$format" -i; else xargs -0 "$format" --dry-run -Werror; fi
