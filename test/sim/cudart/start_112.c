/*
 * The start of cudart 11.2 and older: dlsym for every name, with its version and suffix.
 */
#include "runtime.h"

#include <dlfcn.h>
#include <string.h>

static void look_up(void *library, void *field, const char *symbol)
{
    void *address = dlsym(library, symbol);
    memcpy(field, &address, sizeof(address));
}

static void fill(void *library, struct runtime_driver *table)
{
#define DRIVER(name, version, symbol) look_up(library, &table->name, #symbol);
#define TWIN(name, version, symbol, suffix) DRIVER(name, version, symbol)
#include "driver_functions.def"
#undef DRIVER
#undef TWIN
}

static void fill_per_thread(void *library, struct runtime_driver *table)
{
#define DRIVER(name, version, symbol) look_up(library, &table->name, #symbol);
#define TWIN(name, version, symbol, suffix) look_up(library, &table->name, #symbol #suffix);
#include "driver_functions.def"
#undef DRIVER
#undef TWIN
}

CUresult runtime_start(struct runtime_start *start)
{
    start->version = 11020;
    start->device_is_lazy = 1;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        return CUDA_ERROR_NO_DEVICE;
    look_up(library, &start->init, "cuInit");
    if (!start->init)
        return CUDA_ERROR_NOT_FOUND;
    fill(library, &runtime_drivers[0]);
    fill_per_thread(library, &runtime_drivers[1]);
    return CUDA_SUCCESS;
}
