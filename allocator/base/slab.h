/* Our own structs of one kind: of fixed size, and never anything else (a stale pointer reads a struct
 * of the same kind, not a hole). Caller holds a lock. */
#ifndef CACHALOT_ALLOCATOR_BASE_SLAB_H
#define CACHALOT_ALLOCATOR_BASE_SLAB_H

#include <stddef.h>

#include "allocator/base/metadata.h"

struct slab {
    size_t item_bytes; /* at least sizeof(void *) */
    size_t kept_from;  /* from here on an item keeps what it held, given back or not; 0: nothing */
    size_t apart; /* items made one after the other lie so many apart: a prime; 0: side by side */
    struct metadata *metadata; /* where they lie (metadata_take) */
    void *free;
    char *chunk;
    size_t chunk_bytes, made; /* items of this chunk */
};

/* An item, zeroed but for what it keeps, or NULL when the host is out of memory. */
void *slab_take(struct slab *slab);
void slab_give(struct slab *slab, void *item);

#endif
