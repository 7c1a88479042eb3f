/* Shelves: the blocks of each size in a thread cache, filled from the transfer cache and spilled
 * into it. */
#ifndef CACHALOT_ALLOCATOR_THREAD_CACHE_SHELVES_H
#define CACHALOT_ALLOCATOR_THREAD_CACHE_SHELVES_H

#include "allocator/thread_cache/thread_cache.h"

/* The cache's own thread calls these, inside its cache or under the lock. thread_cache_fill returns
 * 1 if the cache has a block of `size` bytes, from the transfer cache if need be. thread_cache_room
 * returns 1 if the cache has room for one, after it spilled others if need be. Both return 0
 * otherwise. */
int thread_cache_fill(struct thread_cache *cache, uint64_t size);
int thread_cache_room(struct thread_cache *cache, uint64_t size);

#endif
