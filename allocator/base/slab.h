/* A slab: items of one size and one kind. Its memory never serves another kind and is never
 * unmapped, so a stale pointer reads an item of the same kind. The caller holds a lock. */
#ifndef CACHALOT_ALLOCATOR_BASE_SLAB_H
#define CACHALOT_ALLOCATOR_BASE_SLAB_H

#include <stddef.h>

#include "allocator/base/metadata.h"

struct slab {
    size_t item_bytes; /* at least sizeof(void *) */
    size_t kept_from; /* offset from which an item keeps its bytes when given back; 0: keeps none */
    size_t apart;     /* distance, in items, of two made in a row: a prime; 0: side by side */
    struct metadata *metadata; /* memory for chunks (metadata_take) */
    void *free;                /* items that were given back, linked by their first word */
    char *chunk;
    size_t chunk_bytes, made; /* of this chunk: its size, and the items made so far */
};

/* Returns an item, zeroed except for the bytes that it keeps, or NULL when the host is out of
 * memory. slab_give takes an item back. */
void *slab_take(struct slab *slab);
void slab_give(struct slab *slab, void *item);

#endif
