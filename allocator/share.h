/* Blocks that somebody else comes to know: marked, asked about, lent to other processes. */
#ifndef CACHALOT_ALLOCATOR_SHARE_H
#define CACHALOT_ALLOCATOR_SHARE_H

#include "allocator/allocator.h"

enum block_mark { BLOCK_PINNED, BLOCK_UNPINNED, BLOCK_EXPORTED, BLOCK_LENT };
struct block_place {
    uint64_t segment_address, offset, size_bytes, requested_bytes;
    uint64_t context, name; /* name: never another block's, nor this one's another time */
    unsigned device;
    int mapped;      /* mapped memory: the driver's answers about it are those of its mappings */
    int sync_memops; /* the attribute, which the driver keeps for allocations of its own only */
};
/* Marks the live block that holds `address`: pinned: SYNC_MEMOPS is set, so it is never
 * recycled; unpinned: not any more, but that stays; exported: from now on blocks
 * >= 2 MiB get segments of their own; lent: exported, where those of mapped memory can be lent.
 * Fills *place. Returns 0, ALLOCATOR_UNKNOWN or ALLOCATOR_INVALID. */
int domain_mark(struct domain *domain, uint64_t address, enum block_mark mark,
                struct block_place *place);

/* SYNC_MEMOPS of the live block that holds `address`: `set` has the driver do it, without the lock,
 * and the context does not end meanwhile. It is not called for one that is not set any more in a
 * segment where another one is. Returns 0, what `set` returned, ALLOCATOR_UNKNOWN or
 * ALLOCATOR_INVALID. */
int domain_sync_memops(struct domain *domain, uint64_t address, int on,
                       int (*set)(void *device, uint64_t address, int mapped, int on));

/* Lends the memory below the exported block that begins at `address` and has that name: `take` is
 * called for each piece of it with the driver's handle and its bytes, from the lowest on, without
 * the lock, and none is given back meanwhile. Fills *loan before. Returns 0, what `take` returned if
 * not 0, or ALLOCATOR_UNKNOWN: there is no such block (any more). */
struct block_loan {
    uint64_t offset, bytes; /* of the block in all that is lent; of that */
};
int domain_lend(struct domain *domain, uint64_t address, uint64_t name, struct block_loan *loan,
                int (*take)(void *context, uint64_t handle, uint64_t bytes), void *context);

/* The live block that holds `address`: as domain_mark, and marks nothing. */
int domain_find(struct domain *domain, uint64_t address, struct block_place *place);

#endif
