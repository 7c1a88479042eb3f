/* What a page says of other processes (see layout.h). */
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

#endif
