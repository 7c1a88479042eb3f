#!/bin/sh
# headers.sh ROOT CUDA_INCLUDE CC…: each header compiles alone, and says first what it is for.
set -eu
cd "$1"
include=$2
shift 2
bad=0
for header in $(find stats allocator interpose -name '*.h' | sort); do
    printf '#include "%s"\n' "$header" |
        "$@" -std=c17 -D_GNU_SOURCE -Wall -Wextra -Werror -fsyntax-only -I. -isystem "$include" -x c - || { echo "$header does not compile alone"; bad=1; }
    case $(head -n 1 "$header") in
    "/* "*) ;;
    *) echo "$header does not begin with its purpose"; bad=1 ;;
    esac
done
exit $bad
