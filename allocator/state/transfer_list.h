/* Where an allocator's spare blocks of one size lie (transfer.h). */
#ifndef CACHALOT_ALLOCATOR_STATE_TRANSFER_LIST_H
#define CACHALOT_ALLOCATOR_STATE_TRANSFER_LIST_H

#include <stdatomic.h>
#include <stdint.h>

#define SPARE_PLACES 6

struct block;

/* A line of its own: who gives or takes a batch touches no other of those that threads share. */
struct transfer_list {
    _Alignas(64) _Atomic uint64_t count; /* of places that are taken; or a thread holds it */
    int asked;                           /* a batch was taken since the last look */
    struct block *batch[SPARE_PLACES];   /* behind the last one's, in `node.left`, more */
};

#endif
