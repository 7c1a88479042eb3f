/* Could memory be had at all? Asked before any wait for memory. All functions need the domain's
 * lock, and drop it while they ask the driver what is free. */
#ifndef CACHALOT_ALLOCATOR_ATTAINABLE_H
#define CACHALOT_ALLOCATOR_ATTAINABLE_H

#include "allocator/state/domain.h"

/* Could a request for `size` bytes be served, if all work of the device ended at once, and all that
 * the program does not hold went back or moved? 0: no wait can help. */
int attainable(struct allocator *allocator, uint64_t size);

/* domain_could_release for the device of one allocator. */
int attainable_by_release(struct allocator *allocator, uint64_t bytes, int is_short);

#endif
