/*
 * The start of cudart 11.3 to 11.8: one dlsym of the cuGetProcAddress with four arguments, and
 * everything through it.
 */
#include "runtime.h"

#include <dlfcn.h>
#include <string.h>

typedef __typeof__(cuGetProcAddress) get_function;

static void look_up(get_function *get, void *field, const char *name, int version, cuuint64_t flags)
{
    void *address = NULL;
    get(name, &address, version, flags);
    memcpy(field, &address, sizeof(address));
}

#define FIELD(name, version, flags) look_up(get, &table->name, #name, version, flags);
#define DRIVER(name, version, symbol) FIELD(name, version, CU_GET_PROC_ADDRESS_DEFAULT)
#define TWIN(name, version, symbol, suffix) FIELD(name, version, flags)

static void fill(get_function *get, struct runtime_driver *table, cuuint64_t flags){
#include "driver_functions.def"
}

CUresult runtime_start(struct runtime_start *start)
{
    start->version = 11030;
    start->device_is_lazy = 1;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *address = library ? dlsym(library, "cuGetProcAddress") : NULL;
    if (!address)
        return CUDA_ERROR_NO_DEVICE;
    get_function *get;
    memcpy(&get, &address, sizeof(get));
    look_up(get, &start->init, "cuInit", 2000, CU_GET_PROC_ADDRESS_DEFAULT);
    if (!start->init)
        return CUDA_ERROR_NOT_FOUND;
    fill(get, &runtime_drivers[0], CU_GET_PROC_ADDRESS_DEFAULT);
    fill(get, &runtime_drivers[1], CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    return CUDA_SUCCESS;
}
