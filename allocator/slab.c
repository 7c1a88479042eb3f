/* Items that are not taken are poisoned: a build with ASan ends the process that touches one. In
 * any other build these macros are nothing. */
#include "allocator/slab.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#else /* a clang that came without its run-time */
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

#define FIRST_BYTES ((size_t)256 * 1024)  /* of memory for items; all that most processes need */
#define MANY_BYTES 4096                   /* no page and more each, as a thread's cache is */
#define CHUNK_BYTES ((size_t)2048 * 1024) /* then a huge page at a time, where the host has them */

/* What is nobody's while the item is not taken. */
static size_t own_bytes(const struct slab *slab)
{
    return slab->kept_from ? slab->kept_from : slab->item_bytes;
}

static char *map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* One that begins at a multiple of its size: then it can be a huge page. */
static char *map_chunk(void)
{
    char *memory = map(2 * CHUNK_BYTES);
    if (!memory)
        return NULL;
    size_t before = -(uintptr_t)memory % CHUNK_BYTES;
    if (before)
        munmap(memory, before);
    munmap(memory + before + CHUNK_BYTES, CHUNK_BYTES - before);
    madvise(memory + before, CHUNK_BYTES, MADV_HUGEPAGE);
    return memory + before;
}

static int grow(struct slab *slab)
{
    int many = slab->chunk && slab->item_bytes < MANY_BYTES;
    char *chunk = many ? map_chunk() : map(FIRST_BYTES);
    if (!chunk)
        return -1;
    slab->chunk_bytes = many ? CHUNK_BYTES : FIRST_BYTES;
    slab->chunk = chunk;
    slab->made = 0;
    ASAN_POISON_MEMORY_REGION(chunk, slab->chunk_bytes);
    return 0;
}

void *slab_take(struct slab *slab)
{
    if (slab->free) {
        void *item = slab->free;
        ASAN_UNPOISON_MEMORY_REGION(item, own_bytes(slab));
        memcpy(&slab->free, item, sizeof slab->free);
        return memset(item, 0, own_bytes(slab));
    }
    if (slab->made == slab->chunk_bytes / slab->item_bytes && grow(slab))
        return NULL;
    size_t most = slab->chunk_bytes / slab->item_bytes;
    assert(!slab->apart || most % slab->apart); /* so that each place comes once */
    size_t place = slab->apart ? slab->made * slab->apart % most : slab->made;
    void *item = slab->chunk + place * slab->item_bytes;
    ASAN_UNPOISON_MEMORY_REGION(item, slab->item_bytes);
    slab->made++;
    return item;
}

void slab_give(struct slab *slab, void *item)
{
    memcpy(item, &slab->free, sizeof slab->free);
    slab->free = item;
    ASAN_POISON_MEMORY_REGION(item, own_bytes(slab));
}
