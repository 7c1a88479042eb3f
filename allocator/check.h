/* The invariants of an allocator's books, for assertions. */
#ifndef CACHALOT_ALLOCATOR_CHECK_H
#define CACHALOT_ALLOCATOR_CHECK_H

#include "allocator/state/domain.h"

/* Do the books agree with each other? Walks all blocks. The domain's lock is held. */
int allocator_is_valid(const struct allocator *allocator);

#endif
