/* The host process: is it served, and the state that every room needs.
 *
 * Lock rule: fields are written by start.c before service begins, except for the atomic ones. */
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
    int pid, life;     /* life: of this process and its ancestors, see start.c */
    struct domain *domain;
    struct domain *pinned; /* of pinned memory; NULL: the driver serves it */
    struct page *page;
    int watched;                      /* an option sees each allocation: no hit without the lock */
    struct sites *sites;              /* call sites, in the page; NULL: not recorded */
    stat_value early[COVERAGE_KINDS]; /* events counted before there is a page */
    struct config config;
};
extern struct process process __attribute__((visibility("hidden")));

/* How deep the calling thread is inside the library. A signal handler that calls exit may have
 * interrupted the thread there; the exit then takes none of our locks. */
extern _Thread_local int process_inside;

/* Should this process be served? 0 when it is disabled, excluded by CACHALOT_ONLY, or setuid. */
int process_enabled(void);

static inline int process_state(void)
{
    return atomic_load_explicit(&process.state, memory_order_acquire);
}

static inline int process_serving(void)
{
    return process_state() == PROCESS_SERVING;
}

/* Prepares the process. Called by the constructor, or before it if a constructor of another library
 * uses CUDA. Idempotent. */
void process_load(void);

void process_count(enum coverage_kind kind);

/* The process that called process_count first: this one or an ancestor; 0: none has. */
pid_t process_first_reached(void);

/* A number of the calling thread; never 0, and never another thread's. */
uint64_t process_thread_id(void);

/* Says in the report that work goes past the library, in `way`. Needs the page. */
void process_note_unseen(const char *way);

/* Puts a warning (printf-like) into page and report, and into CACHALOT_LOG if that is set. Needs
 * the page. */
void process_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes a line to CACHALOT_LOG, if that is set. */
void process_log(const char *text);

#endif
