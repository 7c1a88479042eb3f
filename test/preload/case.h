/* What the programs share. They print what they see; the test compares it with a run without us. */
#ifndef PRELOAD_CASE_H
#define PRELOAD_CASE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

#define SAY(expression) (printf("%s: %lld\n", #expression, (long long)(expression)), fflush(stdout))

#ifndef OK
#define OK(expression)                                                                             \
    do {                                                                                           \
        long long got = (long long)(expression);                                                   \
        if (got) {                                                                                 \
            fprintf(stderr, "%s:%d: %s gives %lld\n", __FILE__, __LINE__, #expression, got);       \
            _exit(99);                                                                             \
        }                                                                                          \
    } while (0)
#endif

#define CHECK(condition) OK(!(condition))

#endif
