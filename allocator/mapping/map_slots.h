/* The driver's part of a claim. All functions need the domain's lock. */
#ifndef CACHALOT_ALLOCATOR_MAPPING_MAP_SLOTS_H
#define CACHALOT_ALLOCATOR_MAPPING_MAP_SLOTS_H

#include "allocator/pool/arena_chunks.h"
#include "allocator/mapping/window.h"

/* Makes the chunk that the slot has been given at home there, or away from home. */
void arena_give_home(struct arena *arena, uint32_t chunk, uint32_t slot);

/* Has the driver make the changing slots of the window usable; `bytes` of their memory are new.
 * Drops the lock meanwhile. Returns 0, or the driver's code: then these slots are absent.
 * ALLOCATOR_PASS: the context has ended, and the arena with it. */
int arena_make_usable(struct allocator *allocator, struct arena *arena, const struct window *window,
                      uint64_t bytes);

/* Ends a claim without asking the driver: its changing slots are absent. Returns the driver's code
 * for out of memory. */
int arena_abandon(struct arena *arena, const struct window *window);

#endif
