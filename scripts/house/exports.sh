#!/bin/sh
# exports.sh LIBRARY HOOKS.H: the library exports the hooked names and nothing else, and needs libc alone.
set -eu
hooks=$(sed -n '/define HOOK_LIST/,/^$/p; /define RUNTIME_LIST/,/^$/p' "$2" | grep -o 'X([a-z][A-Za-z0-9_]*)' | sed 's/X(\(.*\))/\1/')
[ -n "$hooks" ] || { echo "no hook list in $2"; exit 1; }
wanted=$(printf '%s\ndlmopen\ndlopen\ndlsym\n' "$hooks" | sort -u)
# A hook without its version suffix may be exported beside it: cuMemAlloc for old programs.
got=$(nm -D --defined-only "$1" | awk '{ sub(/@.*/, "", $3); print $3 }' | grep -v '^cachalot_' | sort -u)
if [ "$wanted" != "$got" ]; then
    echo "exported, but in no list:"; printf '%s\n' "$got" | grep -vxF "$wanted" || true
    echo "in a list, but not exported:"; printf '%s\n' "$wanted" | grep -vxF "$got" || true
    exit 1
fi
needed=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libc\.so\.6|ld-linux-.*)$' || true)
[ -z "$needed" ] || { echo "needs more than libc:" $needed; exit 1; }
if readelf -d "$1" | grep -q TEXTREL; then
    echo "has text relocations"
    exit 1
fi
