/* Divided chunks: the last resort before a request fails.
 *
 * When memory runs out, most reusable memory lies in corners. A corner is the end of a chunk whose
 * start a block has, or the start of one whose end a block has. Such a chunk may be mapped in a
 * second slot too. Its corner then lies there, and the wanted block begins or ends with it. Each
 * byte of the chunk is present in one of the two slots. In the other slot that byte is
 * BLOCK_ELSEWHERE, which merges with nothing. Once all of the chunk is reusable, it is whole again
 * in its first slot. Only chunks that are a handle of their own are divided, and only once.
 *
 * All functions need the domain's lock. */
#ifndef CACHALOT_ALLOCATOR_MAPPING_DIVIDE_H
#define CACHALOT_ALLOCATOR_MAPPING_DIVIDE_H

#include "allocator/pool/arena_chunks.h"
#include "allocator/mapping/window.h"

/* Looks for a window for a large block of `size` bytes that begins or ends with a corner of a
 * chunk. It must need less new memory than window->fresh; nothing else of *window is read. Returns
 * 1 and fills *window, or returns 0. */
int arena_find_divided(const struct arena *arena, uint64_t size, struct window *window);

/* Divides the chunks of such a window: their corners are reusable there, and all of them shall be
 * part of the window's block. Slots that are yet to be mapped are changing. Returns how many these
 * are. The arena's kit must have blocks for it. */
uint32_t arena_divide(struct arena *arena, struct window *window);

/* Ends a division whose second slot has none of the chunk: the corner is reusable in the first slot
 * again. */
void arena_undivide(struct arena *arena, uint32_t slot);

/* Makes divided chunks whole again if all of them is reusable. Call it before a search for idle
 * memory. */
void arena_reunite(struct arena *arena);

#endif
