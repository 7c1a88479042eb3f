/* Items that are not taken are poisoned: a build with ASan ends the process that touches one. In
 * any other build these macros are nothing. */
#include "allocator/slab.h"

#include <string.h>
#include <sys/mman.h>

#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#else /* a clang that came without its run-time */
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

#define CHUNK_BYTES (256 * 1024)

/* What is nobody's while the item is not taken. */
static size_t own_bytes(const struct slab *slab)
{
    return slab->kept_from ? slab->kept_from : slab->item_bytes;
}

void *slab_take(struct slab *slab)
{
    if (slab->free) {
        void *item = slab->free;
        ASAN_UNPOISON_MEMORY_REGION(item, own_bytes(slab));
        memcpy(&slab->free, item, sizeof slab->free);
        return memset(item, 0, own_bytes(slab));
    }
    if ((size_t)(slab->chunk_end - slab->chunk) < slab->item_bytes) {
        char *chunk =
            mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (chunk == MAP_FAILED)
            return NULL;
        slab->chunk = chunk;
        slab->chunk_end = chunk + CHUNK_BYTES;
        ASAN_POISON_MEMORY_REGION(chunk, CHUNK_BYTES);
    }
    void *item = slab->chunk;
    ASAN_UNPOISON_MEMORY_REGION(item, slab->item_bytes);
    slab->chunk += slab->item_bytes;
    return item;
}

void slab_give(struct slab *slab, void *item)
{
    memcpy(item, &slab->free, sizeof slab->free);
    slab->free = item;
    ASAN_POISON_MEMORY_REGION(item, own_bytes(slab));
}
