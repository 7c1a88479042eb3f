/* Chunks that go back to the driver. All but the two of the context's end drop the lock while the
 * driver is asked. */
#ifndef CACHALOT_ALLOCATOR_MAPPING_RELEASE_H
#define CACHALOT_ALLOCATOR_MAPPING_RELEASE_H

#include "allocator/pool/arena.h"

/* Looks whether slots left some time ago are done with. */
void arena_poll(struct allocator *allocator, struct arena *arena);

/* Gives idle memory of the arena back, at least `bytes` if there is so much; returns bytes. */
uint64_t arena_release(struct allocator *allocator, struct arena *arena, uint64_t bytes,
                       uint64_t timeout_ns);

/* Bytes that can only be given back; that, and what was idle ever since the last call. */
uint64_t arena_retired(const struct allocator *allocator);
uint64_t arena_unused(struct allocator *allocator);

/* Has the driver allow all that is mapped once more. 0, or its first error. */
int arena_allow(struct allocator *allocator);

/* Forgets what the context knows of the arena's work: it ends. Bury: gives everything back to the driver after
 * that; nothing is under way. */
void arena_forget(struct allocator *allocator);
void arena_bury(struct allocator *allocator);

#endif
