#!/bin/sh
# compile.sh ARCHIVE FILE.c… -- COMPILER OPTION…: the files, compiled side by side, as an archive.
set -eu
archive=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
while [ "$1" != -- ]; do
    printf '%s\0' "$1" >>"$folder/files"
    shift
done
shift
# Files of several folders may have the same name.
xargs -0 -P "$(nproc)" -I{} sh -c 'file=$1 folder=$2; shift 2; exec "$@" -c "$file" -o "$folder/at_$(printf %s "$file" | tr / _).o"' \
    sh {} "$folder" "$@" <"$folder/files"
rm -f "$archive"
ar crs "$archive" "$folder"/*.o
