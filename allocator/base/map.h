/* A map from addresses to nodes: linear hashing, which grows by one bucket per insert, so that no
 * insert ever pays for moving the whole table. Nodes belong to the caller. Caller holds a lock, but
 * for map_glance (map_lookup.h). */
#ifndef CACHALOT_ALLOCATOR_BASE_MAP_H
#define CACHALOT_ALLOCATOR_BASE_MAP_H

#include <stdatomic.h>
#include <stdint.h>

#include "allocator/base/metadata.h"

struct map_node {
    _Atomic uint64_t key;
    struct map_node *_Atomic next;
};

#define MAP_CHUNKS 40 /* chunk 0 has 2^MAP_FIRST buckets, chunk i > 0 as many as all before it */

struct map {
    _Alignas(64) struct map_node *_Atomic *_Atomic chunk[MAP_CHUNKS];
    _Atomic uint64_t buckets;  /* in use; 0 before the first insert */
    uint64_t low;              /* low bits of keys that are not the map's, but their owner's */
    char apart[48];            /* what map_glance reads from what changes all the time */
    struct metadata *metadata; /* where buckets lie (metadata_take) */
    uint64_t count;
};

/* Returns 0, or -1 when the host has no memory for even the first bucket (later it only gets
 * slower). */
int map_insert(struct map *map, struct map_node *node);
struct map_node *map_find(const struct map *map, uint64_t key);

/* Takes the node of `key` out and returns it, or NULL. */
struct map_node *map_remove(struct map *map, uint64_t key);

/* Some node for which `is` holds, or NULL; walks the whole map. */
struct map_node *map_any(const struct map *map,
                         int (*is)(const struct map_node *node, const void *context),
                         const void *context);

#endif
