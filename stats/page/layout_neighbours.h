/* What a page says of requests without memory, and of the other processes then (see layout.h). */
#ifndef CACHALOT_STATS_PAGE_LAYOUT_NEIGHBOURS_H
#define CACHALOT_STATS_PAGE_LAYOUT_NEIGHBOURS_H

#include "stats/counters/stats.h"

#define PAGE_ASKS 16

/* A process that holds memory of a device, or gives some. */
struct page_neighbour {
    uint64_t pid, live_bytes, idle_bytes, given_bytes;
    char program[48];
};
#define PAGE_NEIGHBOURS 4

/* A question to other processes for idle memory. */
struct page_ask {
    stat_value time_ns; /* since the process's start of service */
    uint64_t device, asked_bytes, given_bytes, waited_ns;
    uint64_t asked, answered;                         /* processes */
    struct page_neighbour neighbour[PAGE_NEIGHBOURS]; /* those that gave most */
};

#define PAGE_OOMS 16

struct page_oom {
    stat_value time_ns; /* since the process's start of service */
    uint64_t device, requested_bytes, allocated_bytes, active_bytes, reserved_bytes, reusable_bytes;
    uint64_t largest_allocatable_bytes, device_free_bytes, memory_limit_bytes, native_would_fit;
    uint64_t site;    /* of the request, + 1; 0: not known */
    uint64_t refused; /* the number of a request that fail_alloc refused, else 0 */
    uint64_t kind;    /* enum uncached_kind + 1; 0: memory of the cache */
    uint64_t group_limit_bytes, group_bytes; /* of all processes of the group; limit 0: none */
    uint64_t neighbours, neighbours_live_bytes, neighbours_idle_bytes; /* the user's, there */
    struct page_neighbour neighbour[PAGE_NEIGHBOURS];                  /* the largest first */
};

#endif
