/* What submissions are made with, and each of them made once: for programs that are linked to the
 * driver. */
#ifndef PRELOAD_SUBMISSION_WORLD_H
#define PRELOAD_SUBMISSION_WORLD_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

/* The program's: says what went wrong, if `code` is not 0, and returns whether it did; and what to
 * do when that happens twice. */
int failed(const char *what, long long code);
_Noreturn void give_up(void);
#define OK(expression)                                                                             \
    do {                                                                                           \
        if (failed(#expression, (long long)(expression)) &&                                        \
            failed(#expression, (long long)(expression)))                                          \
            give_up();                                                                             \
    } while (0)

#include "driver_case.h"
#include "submission_list.h"

#define BYTES ((size_t)128)

struct functions {
#define ONE(name, kind, arguments) __typeof__(&name) name;
#define TWINS(name, suffix, kind, arguments)                                                       \
    ONE(name, kind, arguments) ONE(name##suffix, kind, arguments)
    SUBMISSION_LIST(TWINS, ONE) ONE(cuMemFreeAsync, , ) ONE(cuMemFreeAsync_ptsz, , )
#undef ONE
};

/* How many were made. */
extern long kernels, copies, sets, graphs, host_functions, memory_operations, pool_operations,
    others;
extern int host_calls;

extern CUcontext context;
extern CUdeviceptr to, from, managed, pooled;
extern CUarray array[2];
extern CUgraph graph;
extern CUgraphExec exec;
extern unsigned char *pinned;

void prepare(void);
void capture_graph(CUstream stream);
void submit_all(const struct functions *functions, CUstream own);
void free_some(const struct functions *functions, CUstream stream);
void instantiate(CUstream stream);
void allocate_in_graph(CUstream stream);

/* The program's: called after each submission. */
void submitted(const char *name);

/* The sum of all that may have been written, which is then cleared. */
unsigned long settle(void);

#endif
