#include "interpose/lifecycle/own_caches.h"

#include <stdlib.h>
#include <strings.h>

#include "interpose/process/mapped_files.h"
#include "interpose/process/process.h"

static const struct cache {
    const char *file;     /* part of the path of the library that has the cache */
    const char *variable; /* NULL: the program switches it off by a call */
    const char *off;      /* its value then; NULL: any */
    const char *advice;
} known[] = {
    {"/libc10_cuda.so", "PYTORCH_NO_CUDA_MEMORY_CACHING", NULL,
     "PyTorch serves tensors from a cache of its own, whose requests these figures are of: set "
     "PYTORCH_NO_CUDA_MEMORY_CACHING=1"},
    {"/xla_cuda_plugin.so", "XLA_PYTHON_CLIENT_ALLOCATOR", "platform",
     "JAX serves arrays from a cache of its own, whose requests these figures are of: set "
     "XLA_PYTHON_CLIENT_ALLOCATOR=platform (up to JAX 0.10)"},
    {"/cupy/cuda/memory.", NULL, NULL,
     "CuPy serves arrays from a cache of its own, whose requests these figures are of: call "
     "cupy.cuda.set_allocator(None) at the start of the program"},
};
#define KNOWN (sizeof known / sizeof *known)

static struct WIPED told {
    unsigned caches; /* bit i: nothing is to be said of cache i any more */
} told;
static const struct wiped wiped WIPED_ENTRY = {&told, sizeof told};

void own_caches_note(void)
{
    for (size_t i = 0; i < KNOWN; i++) {
        const char *value = known[i].variable ? getenv(known[i].variable) : NULL;
        if (value && (!known[i].off || strcasecmp(value, known[i].off) == 0))
            told.caches |= 1u << i;
    }
}

/* Bytes that the program has asked for, and those of the blocks it got. */
static void sum_requests(uint64_t *requested, uint64_t *allocated)
{
    for (unsigned i = 0; i < process.page->device_count; i++) {
        const struct pool_stat *stat = page_device(process.page, i)->stats.stat;
        for (unsigned pool = 0; pool < STAT_POOLS; pool++) {
            *requested += stat_get(&stat[STAT_requested_bytes].allocated[pool]);
            *allocated += stat_get(&stat[STAT_allocated_bytes].allocated[pool]);
        }
    }
}

/* Where no variable tells, a cache is on if all sizes are multiples of 512, as caches ask for. */
void own_caches_warn(void)
{
    uint64_t requested = 0, allocated = 0;
    sum_requests(&requested, &allocated);
    for (size_t i = 0; requested && i < KNOWN; i++)
        if (!(told.caches >> i & 1) && (known[i].variable || requested == allocated) &&
            mapped_files_hold(known[i].file)) {
            told.caches |= 1u << i;
            process_warn("%s", known[i].advice);
        }
}
