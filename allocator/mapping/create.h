/* Making an arena. */
#ifndef CACHALOT_ALLOCATOR_MAPPING_CREATE_H
#define CACHALOT_ALLOCATOR_MAPPING_CREATE_H

#include "allocator/pool/arena.h"

/* create asks the driver, without the lock, and returns NULL if there is none; begin puts it on the
 * books, under it, and returns 0, or -1 without host memory: then destroy it. */
struct arena *arena_create(struct allocator *allocator);
int arena_begin(struct allocator *allocator, struct arena *arena);
void arena_destroy(struct allocator *allocator, struct arena *arena);

#endif
