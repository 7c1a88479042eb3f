/* Blocks of mapped memory: cut out of holes and put back, moved with their handles, pinned. The domain's lock is held. */
#ifndef CACHALOT_ALLOCATOR_POOL_ARENA_BLOCKS_H
#define CACHALOT_ALLOCATOR_POOL_ARENA_BLOCKS_H

#include "allocator/pool/arena_holes.h"

/* Block structs for `blocks` cuts are in reserve: 0, or -1 without host memory. put: a thread that drops the lock before
 * it cuts takes its reserve along, and puts these `kits` back. */
int arena_fill_kit(struct arena *arena, unsigned blocks);
void arena_put_kit(struct allocator *allocator, struct arena *arena, struct block *kit,
                   unsigned kits);

/* Cuts a block at `address`: returns the rest, of the same state. isolate: takes the bytes [begin, end) of a reusable or
 * absent block out of pool and lists. put: makes it reusable or absent, merged; returns what it has become. Structs come
 * from the reserve. */
struct block *arena_cut(struct arena *arena, struct block *block, uint64_t address);
struct block *arena_isolate(struct arena *arena, struct block *block, uint64_t begin, uint64_t end);
struct block *arena_put(struct block *block, enum block_state state);

/* The idle chunks of slots [slot, end), which lie in one hole, are nobody's from now on; their mappings stay. */
void arena_evict(struct arena *arena, uint32_t slot, uint32_t end);

/* Bytes [begin, end) have become reusable: idle handles that are only lent to their slots go home (arena_home.c). */
void arena_go_home(struct arena *arena, uint64_t begin, uint64_t end);

/* Nothing is ever taken again from the slots of a live block: the program has set something there
 * that sticks. Retire: the block is reusable, and so are those around it: what lies below goes to
 * the driver when that is asked to take something, and then the addresses are as new. */
void arena_pin(struct block *block);
void arena_retire(struct block *block);

#endif
