/* The calling thread's cache: what it serves without the lock, and its life. */
#ifndef CACHALOT_ALLOCATOR_THREAD_CACHE_OWN_H
#define CACHALOT_ALLOCATOR_THREAD_CACHE_OWN_H

#include <stdint.h>

struct allocator;
struct cache_row;
struct domain;

/* What the calling thread's cache can do alone, without the lock, to be tried first: the address,
 * or 0; 1 if freed (as FREED_NATIVE). _asked: with call sites, once it is known where. */
uint64_t allocator_hit_alone(struct allocator *allocator, uint64_t bytes);
uint64_t allocator_hit_asked(struct allocator *allocator, uint64_t bytes);
int domain_free_alone(struct domain *domain, uint64_t address);

/* The calling thread gets a cache of its own, which counts into `row` (of the live page, all 0),
 * and loses it before it ends. Returns 0, or -1: there is none, all its calls take the lock. */
int domain_thread_begins(struct domain *domain, struct cache_row *row);
void domain_thread_ends(struct domain *domain);

/* Is the calling thread in its cache? Only a handler of a signal can ask that. */
int domain_thread_is_inside(const struct domain *domain);

#endif
