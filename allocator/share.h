/* Blocks that others come to know: pinned, exported or lent to other processes, or asked about.
 * Callers do not hold the domain's lock. */
#ifndef CACHALOT_ALLOCATOR_SHARE_H
#define CACHALOT_ALLOCATOR_SHARE_H

#include "allocator/allocator.h"

enum block_mark { BLOCK_PINNED, BLOCK_UNPINNED, BLOCK_EXPORTED, BLOCK_LENT };
struct block_place {
    uint64_t segment_address, offset, size_bytes, requested_bytes;
    uint32_t site;          /* of the request, plus one; 0: not known */
    uint64_t context, name; /* name: never that of another block, or of this one another time */
    unsigned device;
    int mapped;      /* mapped memory: the driver's answers about it are those of its mappings */
    int sync_memops; /* the attribute, which the driver keeps only for its own allocations */
};
/* Marks the live block that holds `address`, and fills *place. Returns 0, ALLOCATOR_UNKNOWN or
 * ALLOCATOR_INVALID.
 *
 * - BLOCK_PINNED: SYNC_MEMOPS is set, so its memory is never handed out again.
 * - BLOCK_UNPINNED: SYNC_MEMOPS is cleared, but its memory stays pinned.
 * - BLOCK_EXPORTED: other processes may use it, and from now on blocks of 2 MiB or more get
 *   segments of their own.
 * - BLOCK_LENT: exported, where blocks of mapped memory can be lent. */
int domain_mark(struct domain *domain, uint64_t address, enum block_mark mark,
                struct block_place *place);

/* Sets (`on`) or clears SYNC_MEMOPS of the live block that holds `address`. `set` has the driver do
 * it, without the lock; the context does not end meanwhile. `set` is not called to clear it while
 * another block of the same segment has it. Returns 0, what `set` returned, ALLOCATOR_UNKNOWN or
 * ALLOCATOR_INVALID. */
int domain_sync_memops(struct domain *domain, uint64_t address, int on,
                       int (*set)(void *device, uint64_t address, int mapped, int on));

/* Lends the memory below the exported block that starts at `address` and has this name. Fills
 * *loan, then calls `take` for each piece of memory, the lowest first, with the driver's handle and
 * its bytes. `take` runs without the lock, and no piece is given back meanwhile. Returns 0, what
 * `take` returned if not 0, or ALLOCATOR_UNKNOWN: there is no such block, or no longer. */
struct block_loan {
    uint64_t offset, bytes; /* of the block in all that is lent; of all that is lent */
};
int domain_lend(struct domain *domain, uint64_t address, uint64_t name, struct block_loan *loan,
                int (*take)(void *context, uint64_t handle, uint64_t bytes), void *context);

/* Finds the live block that holds `address` and fills *place. Returns as domain_mark does. */
int domain_find(struct domain *domain, uint64_t address, struct block_place *place);

#endif
