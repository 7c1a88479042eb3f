#include "allocator/base/map.h"

/* Buckets for each node. In a longer chain a search also reads the lines of other blocks' nodes,
 * which their threads write. */
#define PER_NODE 2

static void set(struct map_node *_Atomic *link, struct map_node *to)
{
    atomic_store_explicit(link, to, memory_order_release);
}

static uint64_t key_of(const struct map *map, const struct map_node *node)
{
    return atomic_load_explicit(&node->key, memory_order_relaxed) & ~map->low;
}

static int make_chunk(struct map *map, unsigned chunk)
{
    if (chunk >= MAP_CHUNKS)
        return -1;
    if (map->chunk[chunk])
        return 0;
    size_t buckets = (size_t)1 << (chunk ? MAP_FIRST + chunk - 1 : MAP_FIRST);
    void *memory = metadata_take(map->metadata, buckets * sizeof(struct map_node *));
    if (!memory)
        return -1;
    atomic_store_explicit(&map->chunk[chunk], memory, memory_order_release);
    return 0;
}

/* Adds a bucket, and moves its nodes out of the bucket that has held them until now. */
static void grow(struct map *map)
{
    uint64_t fresh = map_buckets(map);
    if (make_chunk(map, map_chunk_of(fresh)))
        return;
    uint64_t top = (uint64_t)1 << (63 - __builtin_clzll(fresh));
    struct map_node *_Atomic *old = map_bucket_at(map, fresh - top),
                             *_Atomic *new = map_bucket_at(map, fresh);
    struct map_node *node = map_get(old);
    set(old, NULL);
    set(new, NULL);
    atomic_store_explicit(&map->buckets, fresh + 1, memory_order_release);
    while (node) {
        struct map_node *next = map_get(&node->next);
        struct map_node *_Atomic *bucket = map_bucket_of(map, fresh + 1, key_of(map, node));
        set(&node->next, map_get(bucket));
        set(bucket, node);
        node = next;
    }
}

int map_insert(struct map *map, struct map_node *node)
{
    uint64_t buckets = map_buckets(map);
    if (!buckets) {
        if (make_chunk(map, 0))
            return -1;
        /* The whole first chunk: in short chains a search meets no node that other threads
         * write. */
        atomic_store_explicit(&map->buckets, buckets = (uint64_t)1 << MAP_FIRST,
                              memory_order_release);
    }
    struct map_node *_Atomic *bucket = map_bucket_of(map, buckets, key_of(map, node));
    set(&node->next, map_get(bucket));
    set(bucket, node);
    map->count++;
    for (int i = 0; i < PER_NODE && PER_NODE * map->count > map_buckets(map); i++)
        grow(map);
    return 0;
}

struct map_node *map_find(const struct map *map, uint64_t key)
{
    uint64_t buckets = map_buckets(map);
    struct map_node *node = buckets ? map_get(map_bucket_of(map, buckets, key)) : NULL;
    while (node && !map_has(map, node, key))
        node = map_get(&node->next);
    return node;
}

struct map_node *map_remove(struct map *map, uint64_t key)
{
    uint64_t buckets = map_buckets(map);
    if (!buckets)
        return NULL;
    struct map_node *_Atomic *link = map_bucket_of(map, buckets, key);
    for (struct map_node *node; (node = map_get(link)); link = &node->next)
        if (map_has(map, node, key)) {
            set(link, map_get(&node->next));
            map->count--;
            return node;
        }
    return NULL;
}

struct map_node *map_any(const struct map *map,
                         int (*is)(const struct map_node *node, const void *context),
                         const void *context)
{
    for (uint64_t bucket = 0; bucket < map_buckets(map); bucket++)
        for (struct map_node *node = map_get(map_bucket_at(map, bucket)); node;
             node = map_get(&node->next))
            if (is(node, context))
                return node;
    return NULL;
}
