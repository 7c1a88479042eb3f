/* Making and destroying an arena, the address range of one context's mapped memory. */
#ifndef CACHALOT_ALLOCATOR_MAPPING_CREATE_H
#define CACHALOT_ALLOCATOR_MAPPING_CREATE_H

#include "allocator/pool/arena.h"

/* arena_create reserves addresses, without the lock. Returns NULL if there is no mapped memory.
 * arena_begin puts the arena on the allocator's books, under the domain's lock. Returns 0, or -1
 * without host memory: then call arena_destroy, without the lock. */
struct arena *arena_create(struct allocator *allocator);
int arena_begin(struct allocator *allocator, struct arena *arena);
void arena_destroy(struct allocator *allocator, struct arena *arena);

#endif
