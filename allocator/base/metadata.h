/* Memory for what the allocator keeps about the program's: from mmap, never from the host's
 * malloc, never unmapped. What a domain has of it lies side by side in huge pages, where the
 * host has them: what runs between two requests leaves few of the processor's entries for pages
 * (test/record/hit.md, "Between other work"). In a forked child that is zero. Caller holds a lock. */
#ifndef CACHALOT_ALLOCATOR_BASE_METADATA_H
#define CACHALOT_ALLOCATOR_BASE_METADATA_H

#include <stddef.h>

struct metadata {
    char *at; /* what is left of the last huge page */
    size_t left;
};

/* So many bytes, zeroed, at a multiple of 128, or NULL when the host is out of memory. metadata NULL:
 * a mapping of its own, of which a fork makes a copy. */
void *metadata_take(struct metadata *metadata, size_t bytes);

/* A mapping of its own becomes zero again, and takes no memory of the host until it is written to. */
void metadata_clear(void *memory, size_t bytes);

#endif
