#include "space.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static uint64_t hash(const struct state *state)
{
    uint64_t h = UINT64_C(0x9e3779b97f4a7c15), word;
    const char *bytes = (const char *)state;
    for (size_t i = 0; i < sizeof(*state); i += sizeof(word)) {
        size_t n = sizeof(*state) - i < sizeof(word) ? sizeof(*state) - i : sizeof(word);
        word = 0;
        memcpy(&word, bytes + i, n);
        h = (h ^ word) * UINT64_C(0xff51afd7ed558ccd);
        h ^= h >> 32;
    }
    h *= UINT64_C(0xc4ceb9fe1a85ec53);
    h ^= h >> 29;
    return h ? h : 1;
}

static void *reserve(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        perror("model");
        exit(2);
    }
    return memory;
}

static void place(struct space *space, uint64_t h, uint64_t entry)
{
    size_t at = h & (space->table_size - 1);
    while (space->table[at])
        at = (at + 1) & (space->table_size - 1);
    space->table[at] = entry;
}

/* What the table has of a state: its hash, or half of it and the state's number + 1. */
static uint64_t entry_of(const struct space *space, uint64_t h, size_t index)
{
    return space->parents ? (h & UINT64_C(0xffffffff00000000)) | (index + 1) : h;
}

static void grow(struct space *space)
{
    uint64_t *old = space->table;
    size_t old_size = space->table_size;
    space->table_size = old_size ? old_size * 2 : 1 << 16;
    space->table = reserve(space->table_size * sizeof(*old));
    for (size_t i = 0; space->parents && i < space->number; i++) {
        uint64_t h = hash(&space->states[i]);
        place(space, h, entry_of(space, h, i));
    }
    for (size_t i = 0; !space->parents && i < old_size; i++)
        if (old[i])
            place(space, old[i], old[i]);
    if (old)
        munmap(old, old_size * sizeof(*old));
}

void space_begin(struct space *space, size_t most, int fingerprints, int threads)
{
    *space =
        (struct space){.most = most, .room = fingerprints ? most / 8 : most, .threads = threads};
    space->states = reserve(space->room * sizeof(*space->states));
    if (!fingerprints)
        space->parents = reserve(space->room * sizeof(*space->parents));
    grow(space);
}

void space_end(struct space *space)
{
    munmap(space->states, space->room * sizeof(*space->states));
    if (space->parents)
        munmap(space->parents, space->room * sizeof(*space->parents));
    munmap(space->table, space->table_size * sizeof(*space->table));
}

size_t space_bytes(const struct space *space)
{
    size_t states = space->number < space->room ? space->number : space->room;
    return states * (sizeof(*space->states) + (space->parents ? sizeof(*space->parents) : 0)) +
           space->table_size * sizeof(*space->table);
}

const struct state *space_at(const struct space *space, size_t index)
{
    return &space->states[index % space->room];
}

static int seen(const struct space *space, const struct state *state, uint64_t h)
{
    size_t at = h & (space->table_size - 1);
    for (uint64_t entry; (entry = space->table[at]); at = (at + 1) & (space->table_size - 1)) {
        if (!space->parents && entry == h)
            return 1;
        if (space->parents && entry >> 32 == h >> 32 &&
            !memcmp(&space->states[(uint32_t)entry - 1], state, sizeof(*state)))
            return 1;
    }
    return 0;
}

uint64_t space_prepare(const struct space *space, struct state *state)
{
    int from[THREADS];
    space_canonical(space, state, from);
    uint64_t h = hash(state);
    __builtin_prefetch(&space->table[h & (space->table_size - 1)]);
    return h;
}

int space_add(struct space *space, const struct state *state, uint64_t h, size_t parent)
{
    if (seen(space, state, h))
        return 1;
    if (space->number == space->most || space->number - space->expanded >= space->room)
        return 0;
    if (space->number * 3 >= space->table_size * 2)
        grow(space);
    space->states[space->number % space->room] = *state;
    if (space->parents)
        space->parents[space->number] = (uint32_t)parent;
    place(space, h, entry_of(space, h, space->number++));
    return 1;
}

void space_canonical(const struct space *space, struct state *state, int *from)
{
    uint8_t lock = state->lock;
    for (int i = 0; i < THREADS; i++)
        from[i] = i;
    for (int i = 1; i < space->threads; i++) {
        for (int j = i; j > 0; j--) {
            struct thread *low = &state->threads[j - 1], *high = &state->threads[j], swap = *low;
            if (memcmp(low, high, sizeof(*low)) <= 0)
                break;
            *low = *high;
            *high = swap;
            int was = from[j];
            from[j] = from[j - 1];
            from[j - 1] = was;
        }
    }
    for (int i = 0; lock && i < space->threads; i++)
        if (from[i] == lock - 1)
            state->lock = i + 1;
}
