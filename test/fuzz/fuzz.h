/* What each target gives: with libFuzzer's own main, or with replay.c's, which runs the corpus. A
 * finding is a crash, a sanitizer's report, a leak, or HOLDS that does not hold. */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOLDS(condition) ((condition) ? (void)0 : __builtin_trap())

#endif
