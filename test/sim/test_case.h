/*
 * Cases run in a child of their own, with their own CACHALOT_SIM_* (the simulator reads them once).
 */
#ifndef SIM_TEST_CASE_H
#define SIM_TEST_CASE_H

#include "sim.h"

#include <cuda.h>

struct test_case {
    const char *name;
    void (*run)(void);
    const char *environment; /* "NAME=value NAME=value", or NULL */
    const char *aborts_with; /* NULL: must succeed; else: dies of SIGABRT saying all of a|b|c */
};

/* What begin() makes: a primary context, streams (a and b are non-blocking), 4 MiB of memory, and
 * two ranges in it that overlap in one byte. */
extern CUcontext context;
extern CUstream a, b, blocking;
extern CUdeviceptr memory;
extern struct cachalot_sim_range write_it, read_it;
void begin(void);
void launch(CUstream stream, uint64_t ns, const struct cachalot_sim_range *range);
/* One that may begin before the work behind which it stands has ended. */
void launch_programmatic(CUstream stream, struct cachalot_sim_range *range);
CUevent event_after(CUstream stream);

/* Returns the exit code for main. */
int test_run(const struct test_case *cases, size_t count);
_Noreturn void test_failed(const char *file, int line, const char *what, long long got);

#define MANUAL "CACHALOT_SIM_CLOCK=manual"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            test_failed(__FILE__, __LINE__, #condition, 0);                                        \
    } while (0)
#define GIVES(expected, expression)                                                                \
    do {                                                                                           \
        long long got = (long long)(expression);                                                   \
        if (got != (long long)(expected))                                                          \
            test_failed(__FILE__, __LINE__, #expression " == " #expected, got);                    \
    } while (0)
#define OK(expression) GIVES(0, expression)

#endif
