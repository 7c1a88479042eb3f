/* What a page says in warnings, and of the program's faults with memory (see layout.h). */
#ifndef CACHALOT_STATS_PAGE_LAYOUT_FAULTS_H
#define CACHALOT_STATS_PAGE_LAYOUT_FAULTS_H

#include "stats/counters/stats.h"

#define PAGE_WARNINGS 32
#define WARNING_BEGUN (UINT64_C(1) << 63)

struct page_warning {
    stat_value count; /* 0: slot free; WARNING_BEGUN: its text is being written */
    char text[248];
};

/* X(name, meaning) */
#define FAULT_LIST(X)                                                                              \
    X(double_free, "frees of a block of the cache that was free already")                          \
    X(interior_free, "frees of an address inside a block")                                         \
    X(foreign_free, "frees of an address that neither the cache nor the driver had given out")     \
    X(past_end, "copies and sets that run past the end of their block (option bounds)")            \
    X(after_free, "copies and sets that begin in memory that was freed (option bounds)")           \
    X(overrun, "blocks with bytes written past the end of the request (option slack)")
enum fault_kind {
#define X(name, meaning) FAULT_##name,
    FAULT_LIST(X)
#undef X
        FAULT_KINDS
};

/* A block of 0 bytes is not known. Call sites are numbers plus one; 0: not known. */
struct page_fault {
    stat_value time_ns; /* since the process's start of service; 0: not written yet */
    uint64_t kind;      /* enum fault_kind */
    uint64_t device;    /* its number plus one; 0: not known */
    uint64_t address, bytes;
    uint64_t past_bytes; /* of the range, beyond the block's end */
    uint64_t block_address, block_bytes;
    uint64_t site, block_site, freed_site; /* of the fault, the allocation and the first free */
    char call[32];                         /* the driver's function */
};
#define PAGE_FAULTS 64

struct page_faults {
    stat_value count[FAULT_KINDS], noted;
    struct page_fault fault[PAGE_FAULTS]; /* the first ones */
};

#endif
