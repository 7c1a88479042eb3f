#include "start_13.h"

#include <dlfcn.h>
#include <string.h>

#define PER_THREAD CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM

typedef __typeof__(cuGetProcAddress_v2) get_function;

static CUresult probe(get_function *get, struct runtime_start *start, get_function **newest)
{
    void *address = NULL;
    get("", &address, 0, CU_GET_PROC_ADDRESS_DEFAULT, NULL);
    CUresult result = get("cuInit", &address, 2000, CU_GET_PROC_ADDRESS_DEFAULT, NULL);
    if (result)
        return result;
    memcpy(&start->init, &address, sizeof(address));
    get("cuGetProcAddress", &address, 11030, CU_GET_PROC_ADDRESS_DEFAULT, NULL);
    result = get("cuGetProcAddress", &address, 12000, CU_GET_PROC_ADDRESS_DEFAULT, NULL);
    memcpy(newest, &address, sizeof(address));
    return result;
}

static void look_up(get_function *get, void *field, const char *name, int version, cuuint64_t flags)
{
    void *address = NULL;
    get(name, &address, version, flags, NULL);
    memcpy(field, &address, sizeof(address));
}

#define FIELD(name, version, flags)                                                                \
    if ((version) <= newest)                                                                       \
        look_up(get, &table->name, #name, version, flags);
#define DRIVER(name, version, symbol) FIELD(name, version, CU_GET_PROC_ADDRESS_DEFAULT)
#define TWIN(name, version, symbol, suffix) FIELD(name, version, flags)

static void fill(get_function *get, struct runtime_driver *table, cuuint64_t flags, int newest){
#include "driver_functions.def"
}

CUresult start_13(struct runtime_start *start, void *library, int newest)
{
    void *address = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    if (!address)
        return CUDA_ERROR_NO_DEVICE;
    get_function *first;
    memcpy(&first, &address, sizeof(first));
    CUresult result = probe(first, start, &start->get_proc_address);
    if (result)
        return result;
    fill(start->get_proc_address, &runtime_drivers[0], CU_GET_PROC_ADDRESS_DEFAULT, newest);
    fill(start->get_proc_address, &runtime_drivers[1], PER_THREAD, newest);
    return CUDA_SUCCESS;
}
