/* Divided chunks: the last resort before a request fails.
 *
 * Of what is reusable when memory runs out most lies in corners: ends of chunks whose begin a block has, and
 * begins whose end one has. Such a chunk may be mapped in a second slot too, and its corner lie there: the block
 * that is wanted begins, or ends, with it. Then each byte of the chunk is present in one of the two slots; what
 * is not in a slot is BLOCK_ELSEWHERE there, which nothing merges with. Once all of the chunk is reusable it is one
 * again, where it was. Only chunks that are a handle of their own are divided, and once.
 *
 * Guarded by the domain's lock. */
#ifndef CACHALOT_ALLOCATOR_MAPPING_DIVIDE_H
#define CACHALOT_ALLOCATOR_MAPPING_DIVIDE_H

#include "allocator/pool/arena_chunks.h"
#include "allocator/mapping/window.h"

/* Is there a window for a large block of `size` bytes that begins, or ends, with a corner of a chunk, and needs
 * less than *window, whose fresh bytes alone are read, of the driver? Then it is *window. */
int arena_find_divided(const struct arena *arena, uint64_t size, struct window *window);

/* Divides the chunks of such a window: their corners are reusable in it, and all of them are to be its block's.
 * The slots that are yet to be mapped are changing. Returns how many. The kit has blocks for it. */
uint32_t arena_divide(struct arena *arena, struct window *window);

/* The second slot of a divided chunk has none of it any more: its corner is reusable where it was. */
void arena_undivide(struct arena *arena, uint32_t slot);

/* Divided chunks of which all is reusable are one again: before somebody looks for what is idle. */
void arena_reunite(struct arena *arena);

#endif
