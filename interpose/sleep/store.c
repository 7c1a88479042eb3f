#include "interpose/sleep/store.h"

#include <stddef.h>
#include <sys/mman.h>

#include "allocator/base/units.h"
#include "interpose/process/private_files.h"
#include "stats/os/host_memory.h"

#define LEFT_OVER (256 * MIB) /* what the host keeps for others */

/* A host that does not say what it has left counts as one with enough. */
static void look(void *available)
{
    struct host_memory memory;
    *(uint64_t *)available = host_memory_read(&memory) == 0 ? memory.available : UINT64_MAX;
}

/* Huge pages: a tenth of the time to touch them. */
char *store_make(uint64_t bytes, const char **why)
{
    uint64_t available = 0;
    files_run(look, &available);
    *why = "the host has too little free memory";
    if (available < LEFT_OVER || available - LEFT_OVER < bytes)
        return NULL;
    char *store = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (store == MAP_FAILED)
        return NULL;
    madvise(store, bytes + 1, MADV_HUGEPAGE);
    madvise(store, bytes + 1, MADV_DONTDUMP);
    madvise(store, bytes + 1, MADV_DONTFORK);
    return store;
}

void store_drop(char *store, uint64_t bytes)
{
    if (store)
        munmap(store, bytes + 1);
}
