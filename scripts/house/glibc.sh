#!/bin/sh
# glibc.sh [--newest] FILE…: the versions of glibc's symbols that the files need. None may be newer than what the oldest
# supported system has (2.34: RHEL 9 has it, Ubuntu 22.04 2.35, Debian 12 2.36); what is built against a glibc newer than
# Debian 12's cannot keep to that (77). --newest: prints the newest alone.
set -eu
most=2.34
only=no
[ "$1" != --newest ] || { only=yes; shift; }
command -v readelf >/dev/null || { echo "no readelf"; exit 77; }
versions=$(for file; do readelf -W --version-info "$file"; done | grep -o 'GLIBC_[0-9.]*[0-9]' | sed 's/GLIBC_//' | sort -Vu)
newest=$(printf '%s\n' "$versions" | tail -n 1)
[ -n "$newest" ] || { echo "needs nothing of glibc?"; exit 1; }
if [ "$only" = yes ]; then
    echo "$newest"
    exit 0
fi
echo "needs glibc:" $versions
[ "$(printf '%s\n%s\n' "$newest" "$most" | sort -V | tail -n 1)" != "$most" ] || exit 0
here=$(getconf GNU_LIBC_VERSION | sed 's/.* //')
echo "$newest is newer than $most; built with glibc $here"
[ "$(printf '%s\n2.36\n' "$here" | sort -V | tail -n 1)" = 2.36 ] || exit 77
exit 1
