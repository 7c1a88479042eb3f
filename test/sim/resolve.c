#include "call.h"
#include "config.h"

#include <string.h>

/* Length of a symbol without its _ptds or _ptsz. */
static size_t length_without_twin(const char *name, int *twin)
{
    size_t length = strlen(name);
    *twin = length > 5 && strncmp(name + length - 5, "_pt", 3) == 0;
    return *twin ? length - 5 : length;
}

static int symbol_is(const char *name, const char *wanted, int *twin)
{
    size_t length = length_without_twin(name, twin), base = strlen(wanted);
    if (length < base || strncmp(name, wanted, base) != 0)
        return 0;
    return length == base || (length == base + 3 && strncmp(name + base, "_v", 2) == 0);
}

/* The newest version not newer than asked for, and its twin if per-thread streams are wanted. */
static const struct sim_symbol *symbol_find(const char *name, int version, int per_thread,
                                            int *newer)
{
    const struct sim_symbol *best = NULL;
    int best_twin = 0;
    for (int i = 0; i < CALL_COUNT; i++) {
        const struct sim_symbol *symbol = &sim_symbols[i];
        int twin;
        if (!symbol_is(symbol->name, name, &twin) || (twin && !per_thread))
            continue;
        if (symbol->since > version || symbol->since > config()->driver) {
            *newer = 1;
            continue;
        }
        if (!best || twin > best_twin || (twin == best_twin && symbol->since > best->since)) {
            best = symbol;
            best_twin = twin;
        }
    }
    return best;
}

CUresult do_cuGetProcAddress_v2(const char *name, void **address, int version, cuuint64_t flags,
                                CUdriverProcAddressQueryResult *status)
{
    if (!name || !address)
        return CUDA_ERROR_INVALID_VALUE;
    int newer = 0;
    int per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    const struct sim_symbol *symbol = symbol_find(name, version, per_thread, &newer);
    *address = symbol ? (void *)symbol->address : NULL;
    if (status)
        *status = symbol  ? CU_GET_PROC_ADDRESS_SUCCESS
                  : newer ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                          : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return symbol ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult do_cuGetProcAddress(const char *name, void **address, int version, cuuint64_t flags)
{
    return do_cuGetProcAddress_v2(name, address, version, flags, NULL);
}
