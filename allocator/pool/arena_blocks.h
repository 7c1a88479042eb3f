/* Blocks of mapped memory: cut out of holes and put back, moved with their handles, pinned. The
 * domain's lock is held. */
#ifndef CACHALOT_ALLOCATOR_POOL_ARENA_BLOCKS_H
#define CACHALOT_ALLOCATOR_POOL_ARENA_BLOCKS_H

#include "allocator/pool/arena_holes.h"

/* The kit is a reserve of block structs. fill: puts structs for `blocks` cuts there. Returns 0, or
 * -1 without host memory. put: a thread that drops the lock before it cuts takes the kit with it.
 * It puts its `kits` structs back here, or into the slab if the context has ended. */
int arena_fill_kit(struct arena *arena, unsigned blocks);
void arena_put_kit(struct allocator *allocator, struct arena *arena, struct block *kit,
                   unsigned kits);

/* cut: cuts a block at `address` and returns the rest, of the same state. isolate: takes the bytes
 * [begin, end) of a reusable or absent block out of pool and lists. It returns them as one block,
 * in state CLAIMED. put: makes such a block reusable or absent, merges it with its neighbours and
 * returns the result. cut and isolate take structs from the kit. */
struct block *arena_cut(struct arena *arena, struct block *block, uint64_t address);
struct block *arena_isolate(struct arena *arena, struct block *block, uint64_t begin, uint64_t end);
struct block *arena_put(struct block *block, enum block_state state);

/* Takes the idle chunks of slots [slot, end), which lie in one hole, from these slots. No slot has
 * them afterwards; their mappings stay. */
void arena_evict(struct arena *arena, uint32_t slot, uint32_t end);

/* Bytes [begin, end), by address, have become reusable: idle handles there that are away go home
 * (arena_home.c). */
void arena_go_home(struct arena *arena, uint64_t begin, uint64_t end);

/* pin: no request is served any more from the handles of this live block, since the program has set
 * SYNC_MEMOPS there for good. retire: the pinned block has become reusable. Handles that lie wholly
 * in it may only be given back to the driver; the addresses then serve again. */
void arena_pin(struct block *block);
void arena_retire(struct block *block);

#endif
