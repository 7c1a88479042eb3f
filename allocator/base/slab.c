/* Free items are poisoned: a build with ASan ends the process that touches one. In any other build
 * these macros do nothing. */
#include "allocator/base/slab.h"

#include <assert.h>
#include <string.h>

#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#else /* a clang without its sanitizer run-time */
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

#define CHUNK_BYTES ((size_t)64 * 1024) /* of memory for items at a time, or one large item */

/* The bytes of an item that are poisoned while it is free; the others keep their contents. */
static size_t own_bytes(const struct slab *slab)
{
    return slab->kept_from ? slab->kept_from : slab->item_bytes;
}

static int grow(struct slab *slab)
{
    size_t most = CHUNK_BYTES / slab->item_bytes, bytes = (most ? most : 1) * slab->item_bytes;
    char *chunk = metadata_take(slab->metadata, bytes);
    if (!chunk)
        return -1;
    slab->chunk_bytes = bytes;
    slab->chunk = chunk;
    slab->made = 0;
    ASAN_POISON_MEMORY_REGION(chunk, bytes);
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
    assert(!slab->apart || most % slab->apart); /* else a place would come twice */
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
