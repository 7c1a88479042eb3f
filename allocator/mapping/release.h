/* Chunks that go back to the driver. All functions but arena_bury need the domain's lock. Those
 * that ask the driver drop it meanwhile. */
#ifndef CACHALOT_ALLOCATOR_MAPPING_RELEASE_H
#define CACHALOT_ALLOCATOR_MAPPING_RELEASE_H

#include "allocator/pool/arena.h"

/* Finds out whether slots left some time ago are done with: all work has finished that may use what
 * is still mapped there. */
void arena_poll(struct allocator *allocator, struct arena *arena);

/* Gives idle memory of the arena back, at least `bytes` if there is so much. Waits at most
 * `timeout_ns` for work that may use it. Returns the bytes given back. */
uint64_t arena_release(struct allocator *allocator, struct arena *arena, uint64_t bytes,
                       uint64_t timeout_ns);

/* arena_retired returns the bytes that can only be given back. arena_unused adds what has been idle
 * ever since its last call. */
uint64_t arena_retired(const struct allocator *allocator);
uint64_t arena_unused(struct allocator *allocator);

/* Has the driver allow access to all that is mapped once more, for new peers. Returns 0 or its
 * first error. */
int arena_allow(struct allocator *allocator);

/* For the end of a context. arena_forget drops the mark of left slots. Afterwards arena_bury gives
 * everything back to the driver; no call may be under way, and the lock is not held. */
void arena_forget(struct allocator *allocator);
void arena_bury(struct allocator *allocator);

#endif
