/* What a request gets when memory is short and the driver has none. All functions need the domain's
 * lock; last_resort_take drops it while it calls the driver. */
#ifndef CACHALOT_ALLOCATOR_LAST_RESORT_H
#define CACHALOT_ALLOCATOR_LAST_RESORT_H

#include "allocator/state/domain.h"

/* Call it when the driver has no memory for `size` bytes. Returns 0 and *block, if a hole or a
 * corner of mapped memory serves. Else returns the driver's code. Then, if the request would have
 * fitted natively, large blocks are the driver's own from now on. */
int last_resort_take(struct allocator *allocator, uint64_t size, struct block **block);

/* When memory is short: takes a block for a small request of `size` bytes from any hole among
 * large blocks. Returns NULL if there is none. last_resort_is_cornered: did a request have to do
 * so lately, and has the driver given and got back nothing since? Then the next one may do so at
 * once. */
struct block *last_resort_corner(struct allocator *allocator, uint64_t size);
int last_resort_is_cornered(const struct allocator *allocator);

#endif
