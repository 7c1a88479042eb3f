#include "allocator/base/metadata.h"

#include <stdint.h>
#include <sys/mman.h>

#define HUGE_BYTES ((size_t)2048 * 1024)

static char *map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Maps `bytes`, a multiple of HUGE_BYTES, at a multiple of HUGE_BYTES. NULL: no host memory. */
static char *map_huge(size_t bytes)
{
    char *memory = map(bytes + HUGE_BYTES);
    if (!memory)
        return NULL;
    size_t before = -(uintptr_t)memory % HUGE_BYTES;
    if (before)
        munmap(memory, before);
    munmap(memory + before + bytes, HUGE_BYTES - before);
    madvise(memory + before, bytes, MADV_WIPEONFORK); /* copy-on-write would split huge pages */
    madvise(memory + before, bytes, MADV_HUGEPAGE);
    return memory + before;
}

void *metadata_take(struct metadata *metadata, size_t bytes)
{
    if (!metadata)
        return map(bytes);
    bytes = (bytes + METADATA_ALIGNMENT - 1) / METADATA_ALIGNMENT * METADATA_ALIGNMENT;
    if (bytes > HUGE_BYTES / 2) /* else the rest of a huge page is lost */
        return map_huge((bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES);
    if (bytes > metadata->left) {
        char *memory = map_huge(HUGE_BYTES);
        if (!memory)
            return NULL;
        metadata->at = memory;
        metadata->left = HUGE_BYTES;
    }
    char *taken = metadata->at;
    metadata->at += bytes;
    metadata->left -= bytes;
    return taken;
}

void metadata_clear(void *memory, size_t bytes)
{
    madvise(memory, bytes, MADV_DONTNEED);
}
