/* Memory for the allocator's own records. It comes from mmap, never from the host's malloc, and is
 * never unmapped. The records of a domain lie side by side in huge pages, where the host has them.
 * The program's work between two requests leaves few TLB entries for them (test/record/hit.md,
 * "Between other work"). In a forked child these pages are zero. The caller holds a lock. */
#ifndef CACHALOT_ALLOCATOR_BASE_METADATA_H
#define CACHALOT_ALLOCATOR_BASE_METADATA_H

#include <stddef.h>

#define METADATA_ALIGNMENT 128 /* two lines: what is fetched is fetched in pairs */

struct metadata {
    char *at; /* the unused rest of the last huge page: its begin, and its bytes */
    size_t left;
};

/* Returns `bytes` zeroed bytes at a multiple of METADATA_ALIGNMENT, or NULL when the host is out of memory. With
 * metadata NULL they are a separate mapping, which a fork copies. */
void *metadata_take(struct metadata *metadata, size_t bytes);

/* Zeroes a separate mapping of `bytes` bytes. It takes no memory of the host until it is
 * written. */
void metadata_clear(void *memory, size_t bytes);

#endif
