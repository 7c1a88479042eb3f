/* A hash map from addresses to nodes. It uses linear hashing, which grows bucket by bucket, so no
 * insert pays for moving the whole table. Nodes belong to the caller. The caller holds a lock,
 * except for map_glance. */
#ifndef CACHALOT_ALLOCATOR_BASE_MAP_H
#define CACHALOT_ALLOCATOR_BASE_MAP_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/metadata.h"

struct map_node {
    _Atomic uint64_t key;
    struct map_node *_Atomic next;
};

#define MAP_CHUNKS 40 /* chunk 0 has 2^MAP_FIRST buckets, chunk i > 0 as many as all before it */

struct map {
    _Alignas(64) struct map_node *_Atomic *_Atomic chunk[MAP_CHUNKS];
    _Atomic uint64_t buckets; /* in use; 0 before the first insert */
    uint64_t low;             /* low bits of keys that the map ignores: the caller's */
    char apart[48]; /* keeps what map_glance reads off the line of `count`, which often changes */
    struct metadata *metadata; /* memory for buckets (metadata_take) */
    uint64_t count;
};

/* Adds a node, whose key is set and not in the map. Returns 0, or -1 when the host has no memory
 * for the first buckets. Without memory for more buckets the map only gets slower. */
int map_insert(struct map *map, struct map_node *node);

/* Returns the node of `key`, or NULL. */
struct map_node *map_find(const struct map *map, uint64_t key);

/* Removes the node of `key` and returns it; NULL: there is none. */
struct map_node *map_remove(struct map *map, uint64_t key);

/* Returns a node for which `is(node, context)` is not 0, or NULL. Walks the whole map. */
struct map_node *map_any(const struct map *map,
                         int (*is)(const struct map_node *node, const void *context),
                         const void *context);

#define MAP_FIRST 9

/* Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4). The bits from 32 on depend on
 * all bits of an address. Addresses at equal distances spread evenly, whatever the distance. */
static inline uint64_t map_hash(uint64_t key)
{
    return key * UINT64_C(0x9e3779b97f4a7c15) >> 32;
}

static inline unsigned map_chunk_of(uint64_t bucket)
{
    return bucket >> MAP_FIRST ? 64 - (unsigned)__builtin_clzll(bucket >> MAP_FIRST) : 0;
}

/* map_glance alone reads without the lock. Stores are ordered for it: a node before the link to it,
 * a chunk of buckets before the number of buckets that reaches into it. */
static inline struct map_node *map_get(struct map_node *const _Atomic *link)
{
    return atomic_load_explicit(link, memory_order_acquire);
}

static inline int map_has(const struct map *map, const struct map_node *node, uint64_t key)
{
    return (atomic_load_explicit(&node->key, memory_order_relaxed) & ~map->low) == key;
}

static inline uint64_t map_buckets(const struct map *map)
{
    return atomic_load_explicit(&map->buckets, memory_order_acquire);
}

static inline struct map_node *_Atomic *map_bucket_at(const struct map *map, uint64_t bucket)
{
    unsigned chunk = map_chunk_of(bucket);
    uint64_t first = chunk ? (uint64_t)1 << (MAP_FIRST + chunk - 1) : 0;
    return atomic_load_explicit(&map->chunk[chunk], memory_order_relaxed) + (bucket - first);
}

/* The bucket of a key while `buckets` are in use. A hash that names a bucket beyond them loses its
 * highest bit: that gives the bucket from which the named one will be split. */
static inline struct map_node *_Atomic *map_bucket_of(const struct map *map, uint64_t buckets,
                                                      uint64_t key)
{
    uint64_t mask = UINT64_MAX >> __builtin_clzll(buckets), bucket = map_hash(key) & mask;
    if (bucket >= buckets)
        bucket &= mask >> 1;
    return map_bucket_at(map, bucket);
}

#define MAP_STEPS 16 /* a node that moves meanwhile leads into another bucket */

/* map_find without the lock, while other threads change the map: it may miss a node that is there.
 * The memory of a node must stay a node for ever (slab.h), whatever it is used for next. */
static inline struct map_node *map_glance(const struct map *map, uint64_t key)
{
    uint64_t buckets = map_buckets(map);
    struct map_node *node = buckets ? map_get(map_bucket_of(map, buckets, key)) : NULL;
    __builtin_prefetch(node, 1); /* probably the wanted one; the caller writes it */
    for (int step = 0; node && !map_has(map, node, key); node = map_get(&node->next))
        if (++step == MAP_STEPS)
            return NULL;
    return node;
}

#endif
