/* Substitution is by address: the real resolver is asked first, with the caller's own arguments,
 * and its answer is replaced only if it is the address of a hooked function. Unknown versions,
 * missing symbols, status codes and dlerror stay the driver's and libc's own. */
#include "interpose/lookup.h"

#include <dlfcn.h>

#include "interpose/process.h"
#include "interpose/real.h"

/* A search of the global scope found our export. Natively it finds the driver, in the caller's own
 * scope (a plugin's) or behind us, or nothing. */
static void *behind_us(const char *name, const void *caller)
{
    void *function = real_beside(caller, name);
    return function ? function : real_dlsym_call(RTLD_NEXT, name); /* last, for dlerror */
}

void *lookup_dlsym(void *handle, const char *name, const void *caller)
{
    int ours = process_enabled() && real_load();
    void *function = real_dlsym_call(handle, name);
    if (function && real_is_wrapper(function) && !real_is_driver(caller))
        function = behind_us(name, caller);
    if (!function || !ours || real_is_driver(caller))
        return function;
    void *wrapper = real_substitute(function);
    if (wrapper != function)
        process_count(COVERAGE_dlsym_lookups);
    return wrapper;
}

CUresult lookup_substitute(CUresult result, void **function)
{
    if (result != CUDA_SUCCESS || !function || !*function || !process_enabled())
        return result;
    void *wrapper = real_substitute(*function);
    if (wrapper != *function) {
        process_count(COVERAGE_proc_address_lookups);
        *function = wrapper;
    }
    return result;
}
