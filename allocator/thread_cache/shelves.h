/* Shelves: what a thread cache has of each size, filled from the transfer cache and spilled into it. */
#ifndef CACHALOT_ALLOCATOR_THREAD_CACHE_SHELVES_H
#define CACHALOT_ALLOCATOR_THREAD_CACHE_SHELVES_H

#include "allocator/thread_cache/thread_cache.h"

/* By the cache's own thread, which is in it or holds the lock. Is there a block of `size`, from the
 * spare ones if need be? Is there room for one, when others have become spare? */
int thread_cache_fill(struct thread_cache *cache, uint64_t size);
int thread_cache_room(struct thread_cache *cache, uint64_t size);

#endif
