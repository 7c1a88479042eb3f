/* What the driver does for a claim. */
#ifndef CACHALOT_ALLOCATOR_MAPPING_MAP_SLOTS_H
#define CACHALOT_ALLOCATOR_MAPPING_MAP_SLOTS_H

#include "allocator/pool/arena_chunks.h"
#include "allocator/mapping/window.h"

/* The chunk that the slot has been given is at home there, or away. */
void arena_give_home(struct arena *arena, uint32_t chunk, uint32_t slot);

/* Has the driver make the window's slots usable, where they are not (changing); the lock is dropped
 * meanwhile. `bytes` of them it must make. 0, or its code: then they are absent; PASS: the context has
 * gone, and all with it. */
int arena_make_usable(struct allocator *allocator, struct arena *arena, const struct window *window,
                      uint64_t bytes);

/* Nothing was asked of the driver: they are absent. Returns that there is no memory. */
int arena_abandon(struct arena *arena, const struct window *window);

#endif
