#include "allocator/base/map.h"

#define MAP_FIRST 9
#define PER_NODE 2 /* buckets for each node */

/* Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4). The bits from 32 on depend on
 * all bits of an address. Addresses at equal distances spread evenly, whatever the distance. */
static uint64_t hash(uint64_t key)
{
    return key * UINT64_C(0x9e3779b97f4a7c15) >> 32;
}

static unsigned chunk_of(uint64_t bucket)
{
    return bucket >> MAP_FIRST ? 64 - (unsigned)__builtin_clzll(bucket >> MAP_FIRST) : 0;
}

static struct map_node **bucket_at(const struct map *map, uint64_t bucket)
{
    unsigned chunk = chunk_of(bucket);
    uint64_t first = chunk ? (uint64_t)1 << (MAP_FIRST + chunk - 1) : 0;
    return map->chunk[chunk] + (bucket - first);
}

/* The bucket of a key. A hash that names a bucket beyond those in use loses its highest bit: that
 * gives the bucket from which the named one will be split. */
static struct map_node **bucket_of(const struct map *map, uint64_t key)
{
    uint64_t mask = UINT64_MAX >> __builtin_clzll(map->buckets), bucket = hash(key) & mask;
    return bucket_at(map, bucket >= map->buckets ? bucket & mask >> 1 : bucket);
}

static int make_chunk(struct map *map, unsigned chunk)
{
    if (chunk >= MAP_CHUNKS)
        return -1;
    if (map->chunk[chunk])
        return 0;
    size_t buckets = (size_t)1 << (chunk ? MAP_FIRST + chunk - 1 : MAP_FIRST);
    map->chunk[chunk] = metadata_take(map->metadata, buckets * sizeof(struct map_node *));
    return map->chunk[chunk] ? 0 : -1;
}

static void put(struct map *map, struct map_node *node)
{
    struct map_node **bucket = bucket_of(map, node->key);
    node->next = *bucket;
    *bucket = node;
}

/* Adds a bucket, and moves its nodes out of the bucket that has held them until now. */
static void grow(struct map *map)
{
    uint64_t fresh = map->buckets;
    if (make_chunk(map, chunk_of(fresh)))
        return;
    uint64_t top = (uint64_t)1 << (63 - __builtin_clzll(fresh));
    struct map_node **old = bucket_at(map, fresh - top), *node = *old;
    *old = *bucket_at(map, fresh) = NULL;
    map->buckets = fresh + 1;
    while (node) {
        struct map_node *next = node->next;
        put(map, node);
        node = next;
    }
}

int map_insert(struct map *map, struct map_node *node)
{
    if (!map->buckets) {
        if (make_chunk(map, 0))
            return -1;
        map->buckets = (uint64_t)1 << MAP_FIRST;
    }
    put(map, node);
    map->count++;
    for (int i = 0; i < PER_NODE && PER_NODE * map->count > map->buckets; i++)
        grow(map);
    return 0;
}

/* The link to the node of `key`, or to the end of its chain. */
static struct map_node **link_of(const struct map *map, uint64_t key)
{
    struct map_node **link = bucket_of(map, key);
    while (*link && (*link)->key != key)
        link = &(*link)->next;
    return link;
}

struct map_node *map_find(const struct map *map, uint64_t key)
{
    return map->buckets ? *link_of(map, key) : NULL;
}

struct map_node *map_remove(struct map *map, uint64_t key)
{
    if (!map->buckets)
        return NULL;
    struct map_node **link = link_of(map, key), *node = *link;
    if (node) {
        *link = node->next;
        map->count--;
    }
    return node;
}

struct map_node *map_any(const struct map *map,
                         int (*is)(const struct map_node *node, const void *context),
                         const void *context)
{
    for (uint64_t bucket = 0; bucket < map->buckets; bucket++)
        for (struct map_node *node = *bucket_at(map, bucket); node; node = node->next)
            if (is(node, context))
                return node;
    return NULL;
}
