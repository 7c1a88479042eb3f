/* Exported: dlsym (its entry is dlsym_*.S), cuGetProcAddress and cuInit.
 *
 * Substitution is by address. The real resolver is asked first, and its answer is replaced only if
 * it is the address of a hooked function. Unknown versions, missing symbols, status codes and
 * dlerror stay the driver's and libc's own.
 *
 * A search that meets our exports first goes on behind them: programs test in this way whether
 * there is CUDA, and a name that nobody else defines must stay undefined. */
#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "interpose/lifecycle/start.h"
#include "interpose/process/process.h"
#include "interpose/resolve/bindings.h"
#include "interpose/resolve/real_driver.h"
#include "interpose/resolve/unseen.h"

struct lookup {
    void *answer;
    void *next; /* not NULL: continue with this function, called as ours was */
};

/* dlsym. `caller` is the return address. It may run before our constructor and under the loader's
 * lock: no malloc, no lock, no stdio. A program mostly calls it after it has loaded an object. */
struct lookup lookup_dlsym(void *handle, const char *name, const void *caller)
    __attribute__((visibility("hidden")));

/* In the order of HOOK_LIST. */
static void *const wrappers[] = {
#define X(function) (void *)function,
    HOOK_LIST(X)
#undef X
};

/* Our wrapper of a hooked driver function; for any other, `function` itself. */
static void *substitute(void *function)
{
    int hook = real_hook_of(function);
    return hook < 0 ? function : wrappers[hook];
}

static int is_capital(char c)
{
    return c >= 'A' && c <= 'Z';
}

/* NULL, with dlerror set as by a search that finds nothing. The error names the caller's object;
 * where our exports would be found in its scope (the program's own), it names libc. */
static struct lookup absent(const char *name, const void *caller)
{
    void *handle = real_scope(caller);
    if (!handle || real_dlsym_call(handle, name))
        real_dlsym_call(real_handle("libc.so.6"), name);
    return (struct lookup){0};
}

/* Would a search behind the caller find only our export, and natively nothing? */
static int next_is_only_ours(const char *name, const void *caller)
{
    const struct link_map *asking = real_object(caller), *object = real_object(real_dlsym_call);
    if (!asking || !object || real_dlsym_call(RTLD_NEXT, name) ||
        !real_dlsym_call(real_handle(object->l_name), name))
        return 0;
    for (object = object->l_prev; object && object != asking; object = object->l_prev) {
        void *handle = real_handle(object->l_name);
        if (handle && real_dlsym_call(handle, name))
            return 0;
    }
    return object != NULL; /* otherwise the caller lies behind us */
}

/* Positions of objects in the loader's list, which is the order of a search. */
struct order {
    uintptr_t base[3];
    int place[3], count; /* 0: not found */
};

static int find_place(struct dl_phdr_info *info, size_t size, void *data)
{
    struct order *order = data;
    (void)size;
    order->count++;
    for (int i = 0; i < 3; i++)
        if (order->base[i] == info->dlpi_addr && !order->place[i])
            order->place[i] = order->count;
    return 0;
}

/* For a search behind the caller: our wrapper, if the search finds a function of the driver that is
 * the first of its name behind us; else NULL. */
static void *next_of_driver(const char *name, const void *caller)
{
    void *native = real_dlsym_call(RTLD_NEXT, name), *wrapper = substitute(native);
    const struct link_map *owner = wrapper == native ? NULL : real_object(native);
    const struct link_map *asking = real_object(caller), *ours = real_object(real_dlsym_call);
    if (!owner || !asking || !ours)
        return NULL;
    struct order order = {.base = {ours->l_addr, asking->l_addr, owner->l_addr}};
    dl_iterate_phdr(find_place, &order);
    return order.place[0] < order.place[1] && order.place[1] < order.place[2] ? wrapper : NULL;
}

static struct lookup search_next(const char *name, const void *caller, void *real)
{
    void *wrapper = NULL;
    if (next_is_only_ours(name, caller))
        return absent(name, caller);
    if (name[2] != 'd' && process_enabled() && (wrapper = next_of_driver(name, caller)))
        process_count(COVERAGE_dlsym_lookups);
    return (struct lookup){wrapper, wrapper ? NULL : real};
}

static struct lookup search(void *handle, const char *name, const void *caller, void *real)
{
    int serving = process_enabled() && real_load();
    void *function = real_dlsym_call(handle, name), *native = function, *scope;
    if (!function || real_is_ours(function)) {
        scope = handle == RTLD_DEFAULT ? real_scope(caller) : NULL;
        native = scope ? real_dlsym_call(scope, name) : NULL;
    }
    if (function && !native)
        native = real_dlsym_call(RTLD_NEXT, name); /* search behind us */
    if (!native)
        return function ? absent(name, caller) : (struct lookup){NULL, real};
    if (!serving && process_enabled())
        unseen_note_early(native);
    if (name[2] == 'd') /* a function of cudart: there may be several cudarts, so not by address */
        return (struct lookup){function ? function : native, NULL};
    /* real_is_driver once more: before the first look-up the driver is not known. */
    void *wrapper = serving && !real_is_driver(caller) ? substitute(native) : native;
    if (wrapper != native)
        process_count(COVERAGE_dlsym_lookups);
    return (struct lookup){wrapper, NULL};
}

REAL_NOT_SANITIZED struct lookup lookup_dlsym(void *handle, const char *name, const void *caller)
{
    void *real = real_dlsym_find();
    const struct lookup as_natively = {NULL, real};
    if (atomic_load_explicit(&bindings_looking, memory_order_relaxed))
        bindings_look();
    if (!real || !name || name[0] != 'c' || name[1] != 'u')
        return as_natively;
    if (!is_capital(name[2]) && !(name[2] == 'd' && name[3] == 'a' && is_capital(name[4])))
        return as_natively;
    if (real_is_driver(caller))
        return as_natively;
    if (handle == RTLD_NEXT)
        return search_next(name, caller, real);
    return search(handle, name, caller, real);
}

/* The result of cuGetProcAddress, with our wrapper in place of a hooked function. If even cuInit or
 * cuMemAlloc is not known, the driver's calls go past us. */
static CUresult substituted(const char *symbol, CUresult result, void **function)
{
    if (result != CUDA_SUCCESS || !function || !*function || !process_enabled())
        return result;
    void *wrapper = substitute(*function);
    if (wrapper == *function && real_adopt(*function))
        wrapper = substitute(*function);
    else if (wrapper == *function && !real_is_driver(wrapper) &&
             (strcmp(symbol, "cuInit") == 0 || strcmp(symbol, "cuMemAlloc") == 0))
        bindings_go_past(wrapper);
    if (wrapper != *function) {
        process_count(COVERAGE_proc_address_lookups);
        *function = wrapper;
    }
    return result;
}

/* Whether the driver is in two stages shows when it is asked. */
static void look_for_second_stage(void)
{
    void *function = NULL;
    if (real()->cuGetProcAddress_v2("cuMemAlloc", &function, 3020, 0, NULL) == CUDA_SUCCESS &&
        function)
        real_adopt(function);
}

CUresult cuInit(unsigned int flags)
{
    CUresult result = real()->cuInit(flags);
    bindings_look();
    if (result == CUDA_SUCCESS && process_enabled()) {
        look_for_second_stage();
        start_serving();
    }
    return result;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
    return substituted(symbol, real()->cuGetProcAddress(symbol, function, version, flags),
                       function);
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    return substituted(
        symbol, real()->cuGetProcAddress_v2(symbol, function, version, flags, status), function);
}
