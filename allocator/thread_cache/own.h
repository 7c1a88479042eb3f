/* The calling thread's cache: what it serves without the lock, and its life. The caller does not
 * hold the domain's lock. */
#ifndef CACHALOT_ALLOCATOR_THREAD_CACHE_OWN_H
#define CACHALOT_ALLOCATOR_THREAD_CACHE_OWN_H

#include <stdint.h>

#include "stats/os/direct.h"

struct allocator;
struct cache_row;
struct domain;

/* Requests and frees that the calling thread's cache can serve alone, without the lock. Try them
 * first.
 *
 * allocator_hit_alone returns the address of a block of at least `bytes` bytes, or 0, also if the
 * call site of the request is to be looked at. domain_free_alone returns 1 if it freed the block at
 * `address` (as FREED_NATIVE), else 0. */
DIRECT uint64_t allocator_hit_alone(struct allocator *allocator, uint64_t bytes);
DIRECT int domain_free_alone(uint64_t address);

/* Gives the calling thread a cache of its own, which counts into `row` (of the live page, all 0).
 * Returns 0, or -1: the thread has no cache, and all its calls take the lock. domain_thread_ends
 * takes the cache away, before the thread ends. */
int domain_thread_begins(struct domain *domain, struct cache_row *row);
void domain_thread_ends(struct domain *domain);

/* Is the calling thread in its cache? Only a signal handler can ask that. */
int domain_thread_is_inside(const struct domain *domain);

#endif
