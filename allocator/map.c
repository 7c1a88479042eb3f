#include "allocator/map.h"

#include <stddef.h>
#include <sys/mman.h>

#define MAP_FIRST 9

static uint64_t hash(uint64_t key)
{
    key ^= key >> 32;
    key *= UINT64_C(0x9e3779b97f4a7c15);
    return key ^ (key >> 29);
}

static unsigned chunk_of(uint64_t bucket)
{
    return bucket >> MAP_FIRST ? 64 - (unsigned)__builtin_clzll(bucket >> MAP_FIRST) : 0;
}

static struct map_node **bucket_at(const struct map *map, uint64_t bucket)
{
    unsigned chunk = chunk_of(bucket);
    uint64_t first = chunk ? (uint64_t)1 << (MAP_FIRST + chunk - 1) : 0;
    return &map->chunk[chunk][bucket - first];
}

/* Buckets below `buckets` are in use: a hash that names one beyond belongs to its half-sized
 * ancestor. */
static struct map_node **bucket_of(const struct map *map, uint64_t key)
{
    uint64_t mask = UINT64_MAX >> __builtin_clzll(map->buckets), bucket = hash(key) & mask;
    if (bucket >= map->buckets)
        bucket &= mask >> 1;
    return bucket_at(map, bucket);
}

static int make_chunk(struct map *map, unsigned chunk)
{
    if (chunk >= MAP_CHUNKS)
        return -1;
    if (map->chunk[chunk])
        return 0;
    size_t buckets = (size_t)1 << (chunk ? MAP_FIRST + chunk - 1 : MAP_FIRST);
    void *memory = mmap(NULL, buckets * sizeof(struct map_node *), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return -1;
    map->chunk[chunk] = memory;
    return 0;
}

/* One more bucket: its share comes out of the bucket that held both until now. */
static void grow(struct map *map)
{
    uint64_t fresh = map->buckets;
    if (make_chunk(map, chunk_of(fresh)))
        return;
    uint64_t top = (uint64_t)1 << (63 - __builtin_clzll(fresh));
    struct map_node **old = bucket_at(map, fresh - top), **new = bucket_at(map, fresh),
                    *node = *old;
    *old = *new = NULL;
    map->buckets++;
    while (node) {
        struct map_node *next = node->next, **bucket = bucket_of(map, node->key);
        node->next = *bucket;
        *bucket = node;
        node = next;
    }
}

int map_insert(struct map *map, struct map_node *node)
{
    if (!map->buckets) {
        if (make_chunk(map, 0))
            return -1;
        map->buckets = 1;
    }
    struct map_node **bucket = bucket_of(map, node->key);
    node->next = *bucket;
    *bucket = node;
    map->count++;
    if (map->count > map->buckets)
        grow(map);
    return 0;
}

struct map_node *map_find(const struct map *map, uint64_t key)
{
    struct map_node *node = map->buckets ? *bucket_of(map, key) : NULL;
    while (node && node->key != key)
        node = node->next;
    return node;
}

struct map_node *map_remove(struct map *map, uint64_t key)
{
    if (!map->buckets)
        return NULL;
    for (struct map_node **link = bucket_of(map, key); *link; link = &(*link)->next)
        if ((*link)->key == key) {
            struct map_node *node = *link;
            *link = node->next;
            map->count--;
            return node;
        }
    return NULL;
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
