/* What goes back to the driver. The lock is held, and dropped while the driver is asked. */
#ifndef CACHALOT_ALLOCATOR_RELEASE_H
#define CACHALOT_ALLOCATOR_RELEASE_H

#include "allocator/state/domain.h"

/* Each gives back what is idle, at least `bytes` if there is so much, and returns bytes. Work that keeps memory from being
 * idle is waited for up to `timeout_ns` or `idle_ns`, frees up to `fences_ns`. idle: as it is; of: also what is pending or
 * cached, in a context that may be another thread's; for: of all contexts of the device, for a request in this one. */
uint64_t release_idle(struct allocator *allocator, uint64_t bytes, uint64_t timeout_ns);
uint64_t release_of(struct allocator *allocator, uint64_t bytes, uint64_t fences_ns,
                    uint64_t idle_ns);
uint64_t release_for(struct allocator *allocator, uint64_t bytes, uint64_t timeout_ns);

/* For other processes: what was idle ever since the last call, where the device is short of memory. */
uint64_t release_unused(struct allocator *allocator);

/* Before a request for `size` bytes grows: what serves nobody, and what is beyond garbage_collection_threshold. */
void release_beyond_threshold(struct allocator *allocator, uint64_t size);

#endif
