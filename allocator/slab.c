/* Items that are not taken are poisoned: a build with ASan ends the process that touches one. In
 * any other build these macros are nothing. */
#include "allocator/slab.h"

#include <assert.h>
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
    size_t most = CHUNK_BYTES / slab->item_bytes;
    if (!slab->chunk || slab->made == most) {
        char *chunk =
            mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (chunk == MAP_FAILED)
            return NULL;
        slab->chunk = chunk;
        slab->made = 0;
        ASAN_POISON_MEMORY_REGION(chunk, CHUNK_BYTES);
    }
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
