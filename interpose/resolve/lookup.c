/* Substitution is by address: the real resolver is asked first, and its answer is replaced only if
 * it is the address of a hooked function. Unknown versions, missing symbols, status codes and
 * dlerror stay the driver's and libc's own.
 *
 * Where a search meets our exports first, it goes on behind them: programs ask that way whether
 * there is CUDA, and what nobody else defines is not there. */
#include "interpose/resolve/lookup.h"

#include <dlfcn.h>
#include <link.h>

#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"

static int is_capital(char c)
{
    return c >= 'A' && c <= 'Z';
}

/* NULL, and for dlerror what a search says that finds nothing. That names the object that asks; in
 * the scope of the program itself we would be found, so there it names libc. */
static struct lookup absent(const char *name, const void *caller)
{
    void *handle = real_scope(caller);
    if (!handle || real_dlsym_call(handle, name))
        real_dlsym_call(real_handle("libc.so.6"), name);
    return (struct lookup){0};
}

/* Would a search that begins behind the caller find our export, and natively nothing? */
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
    return object != NULL; /* else the caller is behind us */
}

/* Where objects lie in the loader's list, which is the order of a search. */
struct order {
    uintptr_t base[3];
    int place[3], count; /* 0: not there */
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

/* What a search that begins behind the caller finds, if that is a function of the driver and the
 * first of its name behind us: our wrapper of it. */
static void *next_of_driver(const char *name, const void *caller)
{
    void *native = real_dlsym_call(RTLD_NEXT, name), *wrapper = real_substitute(native);
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
        native = real_dlsym_call(RTLD_NEXT, name); /* behind us */
    if (!native)
        return function ? absent(name, caller) : (struct lookup){NULL, real};
    if (name[2] == 'd') /* of a cudart: never by address, since there may be several */
        return (struct lookup){function ? function : native, NULL};
    /* Asked again, since before the first look-up the driver is not known. */
    void *wrapper = serving && !real_is_driver(caller) ? real_substitute(native) : native;
    if (wrapper != native)
        process_count(COVERAGE_dlsym_lookups);
    return (struct lookup){wrapper, NULL};
}

REAL_NOT_SANITIZED struct lookup lookup_dlsym(void *handle, const char *name, const void *caller)
{
    void *real = real_dlsym_find();
    const struct lookup as_natively = {NULL, real};
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
