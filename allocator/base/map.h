/* A hash map from addresses to nodes. It uses linear hashing, which grows bucket by bucket, so no
 * insert pays for moving the whole table. Nodes belong to the caller. The caller holds a lock. */
#ifndef CACHALOT_ALLOCATOR_BASE_MAP_H
#define CACHALOT_ALLOCATOR_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "allocator/base/metadata.h"

struct map_node {
    uint64_t key;
    struct map_node *next;
};

#define MAP_CHUNKS 40 /* chunk 0 has 2^MAP_FIRST buckets, chunk i > 0 as many as all before it */

struct map {
    struct map_node **chunk[MAP_CHUNKS];
    uint64_t buckets;          /* in use; 0 before the first insert */
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

#endif
