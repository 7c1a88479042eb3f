/* The host process: whether it is served, and what all rooms need of it. */
#ifndef CACHALOT_INTERPOSE_PROCESS_PROCESS_H
#define CACHALOT_INTERPOSE_PROCESS_PROCESS_H

#include <sys/types.h>

#include "allocator/allocator.h"
#include "interpose/process/config.h"
#include "interpose/process/wiped.h"
#include "stats/page/page.h"

enum process_state { PROCESS_IDLE, PROCESS_SERVING, PROCESS_EXITING };

struct WIPED process {
    _Atomic int state; /* enum process_state */
    int pid, life;     /* life: of this process and those that it was made from; see start.c */
    struct domain *domain;
    struct page *page;
    struct sites *sites; /* of the page; NULL: nobody wants them */
    _Atomic int own_threads;
    stat_value early[COVERAGE_KINDS]; /* counted before there is a page */
    struct config config;
};
extern struct process process __attribute__((visibility("hidden")));

/* How deep this thread is in the allocator: a signal handler that calls exit interrupts it there,
 * and then the exit must take no lock of ours. */
extern _Thread_local int process_inside;

/* Is there anything to do here? 0 when disabled, in another program than CACHALOT_ONLY, or setuid.
 */
int process_enabled(void);

static inline int process_state(void)
{
    return atomic_load_explicit(&process.state, memory_order_acquire);
}

static inline int process_serving(void)
{
    return process_state() == PROCESS_SERVING;
}

/* In the constructor, or before it, when the constructor of a library uses CUDA. */
void process_load(void);

void process_count(enum coverage_kind kind);

/* The process that called process_count first, this one or one that it was forked from; 0: none. */
pid_t process_first_reached(void);

/* A warning into page, report, and CACHALOT_LOG if set. printf-like. */
void process_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
