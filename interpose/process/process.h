/* The host process: when we begin and stop serving, and everything of ours that a fork must wipe
 * out.
 *
 * `process` lies in memory that the kernel zeroes in a forked or cloned child (MADV_WIPEONFORK):
 * CUDA does not survive a fork, so the child finds nothing begun, no lock held, and starts from
 * nothing if it can. */
#ifndef CACHALOT_INTERPOSE_PROCESS_PROCESS_H
#define CACHALOT_INTERPOSE_PROCESS_PROCESS_H

#include <pthread.h>

#include "allocator/allocator.h"
#include "allocator/reuse/lane.h"
#include "allocator/base/map.h"
#include "allocator/base/slab.h"
#include "interpose/process/config.h"
#include "interpose/context/context_slot.h"
#include "interpose/resolve/cuda_api.h"
#include "interpose/context/virtual_memory.h"
#include "interpose/memory/ipc.h"
#include "stats/page/page.h"

enum process_state { PROCESS_IDLE, PROCESS_SERVING, PROCESS_EXITING };

struct process {
    /* What mallocs, frees and launches look at comes first: with the first contexts it is one page. */
    _Atomic int state; /* enum process_state */
    int pid, life;     /* life: of this process and those that it was made from; see begin */
    int lanes;         /* free_mode is async */
    struct domain *domain;
    struct page *page;
    struct sites *sites; /* NULL: nobody wants them */
    _Atomic int several_contexts, captures, unnoted_captures, own_threads, unnoted_work;
    int traced; /* the trace is whole */
    _Atomic uintptr_t first_context;
    uint64_t captures_begun;
    _Atomic uint64_t generation, late_frees, graphs_forgotten; /* see context.h; after our end */
    _Atomic uint64_t thread_rows;                  /* bit i: a thread has row i of the page */
    _Atomic uint64_t cache_rows[PAGE_CACHES / 64]; /* as thread_rows, of thread caches */
    struct context contexts[MOST_CONTEXTS];
    _Atomic int recordings; /* changes with each mark: apart from the above */
    struct map capturing, others, graphs;
    pthread_mutex_t start_lock, context_lock, others_lock, capture_lock, graphs_lock, report_lock,
        trace_lock, primary_lock[PEER_DEVICES];
    struct slab capture_nodes, other_nodes, graph_nodes;
    stat_value early[COVERAGE_KINDS]; /* counted before there is a page */
    struct ipc ipc;
    struct config config;
    struct peers peers;
};

/* How deep this thread is in the allocator: a signal handler that calls exit interrupts it there,
 * and then the exit must take no lock of ours. */
extern _Thread_local int process_inside;

/* Never NULL after the constructor. */
extern struct process *process __attribute__((visibility("hidden")));

/* Is there anything to do here? 0 when disabled, in another program than CACHALOT_ONLY, or setuid.
 */
int process_enabled(void);

static inline int process_state(void)
{
    return process ? atomic_load_explicit(&process->state, memory_order_acquire) : PROCESS_IDLE;
}

static inline int process_serving(void)
{
    return process_state() == PROCESS_SERVING;
}

/* After the program's own cuInit returned success. */
void process_start(void);

void process_count(enum coverage_kind kind);

/* A warning into page, report, and CACHALOT_LOG if set. printf-like. */
void process_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
