/* What goes back to the driver. All functions need the domain's lock, and drop it while they call
 * the driver. */
#ifndef CACHALOT_ALLOCATOR_RELEASE_H
#define CACHALOT_ALLOCATOR_RELEASE_H

#include "allocator/state/domain.h"

/* Give back idle memory, at least `bytes` if there is so much. Return the bytes given back. They
 * wait up to `timeout_ns` or `idle_ns` for work that keeps memory from being idle, and up to
 * `fences_ns` for pending blocks.
 *
 * release_idle takes memory that is idle already. release_of takes what is pending or cached too,
 * in a context that may be another thread's. release_for does so in all contexts of the device, for
 * a request in this one. */
uint64_t release_idle(struct allocator *allocator, uint64_t bytes, uint64_t timeout_ns);
uint64_t release_of(struct allocator *allocator, uint64_t bytes, uint64_t fences_ns,
                    uint64_t idle_ns);
uint64_t release_for(struct allocator *allocator, uint64_t bytes, uint64_t timeout_ns);

/* For other processes: gives back what has been idle ever since the last call. If nothing was
 * requested or freed since, that is all that is idle, cached or pending and done. Waits at most
 * policy.moment_wait_ns; what work may still use stays until another call. Returns bytes. */
uint64_t release_unused(struct allocator *allocator);

/* Before a request for `size` bytes grows: gives back what serves no request, and what is beyond
 * garbage_collection_threshold. */
void release_beyond_threshold(struct allocator *allocator, uint64_t size);

#endif
