#!/bin/sh
# hardening.sh FILE…: each is built so that a fault in it is hard to use: relro, bind now, no executable
# stack, position independent, stack protector, checked string functions.
set -eu
status=0
bad() {
    echo "$1: $2"
    status=1
}
for file; do
    segments=$(readelf -lW "$file")
    dynamic=$(readelf -dW "$file")
    symbols=$(nm -D --undefined-only "$file")
    echo "$segments" | grep -q GNU_RELRO || bad "$file" "no relro (-z relro)"
    echo "$dynamic" | grep -q 'BIND_NOW\|Flags:.* NOW' || bad "$file" "symbols are bound lazily (-z now)"
    echo "$segments" | grep -q 'GNU_STACK.* RW ' || bad "$file" "the stack is executable"
    readelf -hW "$file" | grep -q 'Type: *DYN' || bad "$file" "not position independent"
    echo "$symbols" | grep -q __stack_chk_fail || bad "$file" "no stack protector"
    echo "$symbols" | grep -q '_chk@' || bad "$file" "no checked functions (FORTIFY_SOURCE)"
done
exit "$status"
