/* The invariants of an allocator's books, for assertions. */
#ifndef CACHALOT_ALLOCATOR_CHECK_H
#define CACHALOT_ALLOCATOR_CHECK_H

#include "allocator/state/domain.h"

/* Does everything that the books say agree? Walks all blocks. The lock is held. */
int allocator_is_valid(const struct allocator *allocator);

#endif
