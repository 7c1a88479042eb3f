/* What the live page counts beside the devices' statistics, once: lists like those of lists.h. */
#ifndef CACHALOT_STATS_PAGE_PAGE_LISTS_H
#define CACHALOT_STATS_PAGE_PAGE_LISTS_H

enum page_request {
    REQUEST_NONE = 0,
    REQUEST_REPORT = 1,
    REQUEST_EMPTY_CACHE = 2,
    REQUEST_BLOCKS = 4
};
/* 0: being made; who makes it says when it counts. */
enum page_state { PAGE_RUNNING = 1, PAGE_EXITING = 2, PAGE_REPORTED = 3 };

/* Memory that the program took past the cache.  X(name) */
#define OTHERS_LIST(X)                                                                             \
    X(managed)                                                                                     \
    X(host)                                                                                        \
    X(pool)                                                                                        \
    X(array)                                                                                       \
    X(vmm)                                                                                         \
    X(imported)                                                                                    \
    X(device)                                                                                      \
    X(graph) /* what a launched graph allocated and the program freed: counted then */
enum other_kind {
#define X(name) OTHER_##name,
    OTHERS_LIST(X)
#undef X
        OTHER_KINDS
};

/* How the program reached CUDA.  X(name, meaning) */
#define COVERAGE_LIST(X)                                                                           \
    X(dlsym_lookups, "driver functions handed out by dlsym")                                       \
    X(proc_address_lookups, "driver functions handed out by cuGetProcAddress")                     \
    X(linked_calls, "calls of driver functions that the program is linked to")                     \
    X(init_calls, "cuInit calls that succeeded")                                                   \
    X(unseen_frees, "driver allocations freed through us that we had not seen made")               \
    X(forwarded_allocations, "cuMemAlloc calls answered by the driver for the program")            \
    X(context_losses, "contexts destroyed or reset while they had blocks")
enum coverage_kind {
#define X(name, meaning) COVERAGE_##name,
    COVERAGE_LIST(X)
#undef X
        COVERAGE_KINDS
};

/* Calls that carried work to a stream, by what CUPTI records of them.  X(name, meaning) */
#define SUBMISSION_LIST(X)                                                                         \
    X(kernels, "launches of kernels")                                                              \
    X(copies, "copies; a batch is one")                                                            \
    X(sets, "sets")                                                                                \
    X(graphs, "launches of graphs, whatever is in them")                                           \
    X(host_functions, "functions of the host and callbacks")                                       \
    X(memory_operations, "waits for values, writes of values, and batches of them")                \
    X(pool_operations, "allocations and frees in a stream")                                        \
    X(others, "prefetches, uploads of graphs, mapped arrays and graphics, semaphores")
enum submission_kind {
#define X(name, meaning) SUBMISSION_##name,
    SUBMISSION_LIST(X)
#undef X
        SUBMISSION_KINDS
};

#endif
