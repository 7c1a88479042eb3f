/* The list of an allocator's transfer cache for one size (thread_cache/transfer.h). */
#ifndef CACHALOT_ALLOCATOR_STATE_TRANSFER_LIST_H
#define CACHALOT_ALLOCATOR_STATE_TRANSFER_LIST_H

#include <stdatomic.h>
#include <stdint.h>

#define SPARE_PLACES 6

struct block;

/* A cache line of its own: a thread that gives or takes a batch touches no other shared line. */
struct transfer_list {
    _Alignas(64) _Atomic uint64_t count; /* places in use; or a thread holds the list */
    int asked;                           /* a thread has asked for a batch since the last look */
    struct block *batch[SPARE_PLACES];   /* more batches follow the last place's, by `node.left` */
};

#endif
