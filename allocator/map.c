#include "allocator/map.h"

#include <stddef.h>
#include <sys/mman.h>

#define MAP_FIRST 9

/* Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4). The bits from 32 on depend on
 * all of an address, and rows of addresses, whatever lies between them, are spread evenly. */
static uint64_t hash(uint64_t key)
{
    return key * UINT64_C(0x9e3779b97f4a7c15) >> 32;
}

static unsigned chunk_of(uint64_t bucket)
{
    return bucket >> MAP_FIRST ? 64 - (unsigned)__builtin_clzll(bucket >> MAP_FIRST) : 0;
}

/* All under the lock but map_glance, for which stores are in order: a node before what leads to it,
 * a chunk before the number of buckets that reaches into it. */
static void set(struct map_node *_Atomic *link, struct map_node *to)
{
    atomic_store_explicit(link, to, memory_order_release);
}

static struct map_node *get(struct map_node *const _Atomic *link)
{
    return atomic_load_explicit(link, memory_order_acquire);
}

static uint64_t key_of(const struct map_node *node)
{
    return atomic_load_explicit(&node->key, memory_order_relaxed);
}

static uint64_t buckets_of(const struct map *map)
{
    return atomic_load_explicit(&map->buckets, memory_order_acquire);
}

static struct map_node *_Atomic *bucket_at(const struct map *map, uint64_t bucket)
{
    unsigned chunk = chunk_of(bucket);
    uint64_t first = chunk ? (uint64_t)1 << (MAP_FIRST + chunk - 1) : 0;
    return atomic_load_explicit(&map->chunk[chunk], memory_order_relaxed) + (bucket - first);
}

/* Buckets below `buckets` are in use: a hash that names one beyond belongs to its half-sized
 * ancestor. */
static inline struct map_node *_Atomic *bucket_of(const struct map *map, uint64_t buckets,
                                                  uint64_t key)
{
    uint64_t mask = UINT64_MAX >> __builtin_clzll(buckets), bucket = hash(key) & mask;
    if (bucket >= buckets)
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
    atomic_store_explicit(&map->chunk[chunk], memory, memory_order_release);
    return 0;
}

/* One more bucket: its share comes out of the bucket that held both until now. */
static void grow(struct map *map)
{
    uint64_t fresh = buckets_of(map);
    if (make_chunk(map, chunk_of(fresh)))
        return;
    uint64_t top = (uint64_t)1 << (63 - __builtin_clzll(fresh));
    struct map_node *_Atomic *old = bucket_at(map, fresh - top),
                             *_Atomic *new = bucket_at(map, fresh);
    struct map_node *node = get(old);
    set(old, NULL);
    set(new, NULL);
    atomic_store_explicit(&map->buckets, fresh + 1, memory_order_release);
    while (node) {
        struct map_node *next = get(&node->next);
        struct map_node *_Atomic *bucket = bucket_of(map, fresh + 1, key_of(node));
        set(&node->next, get(bucket));
        set(bucket, node);
        node = next;
    }
}

int map_insert(struct map *map, struct map_node *node)
{
    uint64_t buckets = buckets_of(map);
    if (!buckets) {
        if (make_chunk(map, 0))
            return -1;
        /* All that there are: who looks for a block shall meet no other that others change. */
        atomic_store_explicit(&map->buckets, buckets = (uint64_t)1 << MAP_FIRST,
                              memory_order_release);
    }
    struct map_node *_Atomic *bucket = bucket_of(map, buckets, key_of(node));
    set(&node->next, get(bucket));
    set(bucket, node);
    map->count++;
    if (map->count > buckets)
        grow(map);
    return 0;
}

struct map_node *map_find(const struct map *map, uint64_t key)
{
    uint64_t buckets = buckets_of(map);
    struct map_node *node = buckets ? get(bucket_of(map, buckets, key)) : NULL;
    while (node && key_of(node) != key)
        node = get(&node->next);
    return node;
}

#define MOST_STEPS 16 /* a node that moves meanwhile leads into another bucket */

struct map_node *map_glance(const struct map *map, uint64_t key)
{
    uint64_t buckets = buckets_of(map);
    struct map_node *node = buckets ? get(bucket_of(map, buckets, key)) : NULL;
    for (int step = 0; node && key_of(node) != key; node = get(&node->next))
        if (++step == MOST_STEPS)
            return NULL;
    return node;
}

struct map_node *map_remove(struct map *map, uint64_t key)
{
    uint64_t buckets = buckets_of(map);
    if (!buckets)
        return NULL;
    struct map_node *_Atomic *link = bucket_of(map, buckets, key);
    for (struct map_node *node; (node = get(link)); link = &node->next)
        if (key_of(node) == key) {
            set(link, get(&node->next));
            map->count--;
            return node;
        }
    return NULL;
}

struct map_node *map_any(const struct map *map,
                         int (*is)(const struct map_node *node, const void *context),
                         const void *context)
{
    for (uint64_t bucket = 0; bucket < buckets_of(map); bucket++)
        for (struct map_node *node = get(bucket_at(map, bucket)); node; node = get(&node->next))
            if (is(node, context))
                return node;
    return NULL;
}
