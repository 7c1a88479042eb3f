/* The block that was freed last, out of its pool as long as nobody but its next owner could tell:
 * what takes and gives back the same size again and again changes no pool. The rule is at the head
 * of kept.c. */
#ifndef CACHALOT_ALLOCATOR_KEPT_H
#define CACHALOT_ALLOCATOR_KEPT_H

#include "allocator/domain.h"

/* Instead of making a freed block reusable: 1 if it is kept, and counted as reusable. */
int kept_keep(struct block *block);

/* May a request of this size have what is kept? Then take hands it over, in no pool; nothing may
 * have been done to a pool in between. Else it must be put. */
static inline int kept_serves(const struct allocator *allocator, uint64_t size)
{
    const struct kept *kept = &allocator->domain->kept;
    return kept->block && kept->size == size && kept->block->segment->allocator == allocator &&
           !allocator->pending &&
           atomic_load_explicit(&allocator->slow, memory_order_relaxed) != SLOW_ALL;
}
struct block *kept_take(struct domain *domain);

/* Into its pool. */
void kept_put(struct domain *domain);

#endif
