#!/usr/bin/env bash
# scripts/house/compilers.sh [COMPILER…]: builds everything, warnings being errors, with each gcc and clang that this machine has
# (apt-get install gcc-12 clang-14 clang-16 clang-19 …), and says which. Not part of CI, where gcc and clang are one each.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/build/setup.sh
. "$here/../build/setup.sh"

[ $# != 0 ] || mapfile -t found < <(compgen -c | grep -xE '(gcc|clang)-[0-9]+' | sort -Vu)
[ $# = 0 ] || found=("$@")
find_meson
need_toolkit
for compiler in "${found[@]}"; do
    folder=$build-$compiler
    CC=$compiler build_tree "$folder" all --buildtype=debugoptimized
    say "$compiler: no warning in $(grep -c '^\[[0-9]*/[0-9]*\] Compiling' "$folder/build.log") files"
done
