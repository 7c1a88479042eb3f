#include "interpose/sleep/live.h"

#include <sys/mman.h>

#include "interpose/context/mappings.h"
#include "interpose/process/process.h"

#define GRAIN UINT64_C(512) /* natively the bytes up to this multiple are the block's, too */

/* A block's bytes beyond its request are nobody's. */
static uint64_t kept_bytes(const struct snapshot_block *block)
{
    uint64_t bytes = (block->requested_bytes + GRAIN - 1) / GRAIN * GRAIN;
    return bytes < block->size_bytes ? bytes : block->size_bytes;
}

static void take(void *context, const struct snapshot_block *block)
{
    struct live *live = context;
    if (block->state != SNAPSHOT_ALLOCATED)
        return;
    if (!block->mapped) {
        live->ordinary_bytes += block->size_bytes;
        return;
    }
    uint64_t bytes = kept_bytes(block);
    struct run *last =
        live->wanted && live->wanted == live->count ? &live->run[live->count - 1] : NULL;
    if (last && last->address + last->bytes == block->address &&
        live->segment == block->segment_address) {
        last->bytes += bytes;
        live->bytes += bytes;
        return;
    }
    live->segment = block->segment_address;
    live->wanted++;
    if (live->count < live->room) {
        live->run[live->count++] = (struct run){block->address, bytes, live->bytes, NULL};
        live->bytes += bytes;
    }
}

/* Runs lie in mappings: each in those of one context. */
static void find_contexts(struct live *live)
{
    for (size_t i = 0; i < live->count; i++) {
        const struct mapping *mapping = mapping_around(live->run[i].address);
        live->run[i].context = mapping ? mapping->backing->context : NULL;
    }
}

void live_drop(struct live *live)
{
    if (live->run)
        munmap(live->run, live->room * sizeof *live->run);
    *live = (struct live){0};
}

/* Blocks may come and go while the list is made: it is made anew with more room. */
int live_list(struct live *live)
{
    for (size_t room = 4096;; room = live->wanted + live->wanted / 4) {
        live_drop(live);
        void *memory = mmap(NULL, room * sizeof *live->run, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return -1;
        live->run = memory;
        live->room = room;
        domain_walk(process.domain, take, live);
        if (live->wanted <= live->room)
            break;
    }
    find_contexts(live);
    return 0;
}

size_t live_find(const struct live *live, uint64_t at)
{
    size_t low = 0, high = live->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (live->run[middle].at <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}
