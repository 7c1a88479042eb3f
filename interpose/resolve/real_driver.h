/* The real functions: dlsym of libc (or of whoever wraps it after us), and libcuda's. */
#ifndef CACHALOT_INTERPOSE_RESOLVE_REAL_DRIVER_H
#define CACHALOT_INTERPOSE_RESOLVE_REAL_DRIVER_H

#include <stdatomic.h>
#include <stdint.h>

#include "interpose/resolve/cuda_api.h"
#include "interpose/resolve/hooks.h"

struct link_map;

struct real_driver {
#define X(name) __typeof__(&name) name;
    HOOK_LIST(X)
    CALL_LIST(X)
#undef X
};

/* The table, and whether it is filled. Until then every function in it answers that there is none.
 * Only for real(), and after it. */
extern struct real_driver real_table __attribute__((visibility("hidden")));
extern _Atomic int real_loaded __attribute__((visibility("hidden")));

/* Fills the table if libcuda is loaded by now. Returns 1 when it is filled. Safe from any thread at
 * any time, also under the loader's lock. */
__attribute__((cold)) int real_load(void);

/* The driver's own functions. Those that this driver lacks answer CUDA_ERROR_NOT_FOUND. Loads the
 * table from the libcuda.so.1 that the process has loaded; without one every function answers so.
 */
static inline const struct real_driver *real(void)
{
    if (__builtin_expect(!atomic_load_explicit(&real_loaded, memory_order_acquire), 0))
        real_load();
    return &real_table;
}

/* A sanitizer asks for libc's functions before it has any memory for its own books. */
#define REAL_NOT_SANITIZED __attribute__((no_sanitize("address", "thread", "undefined")))

/* The real dlsym. */
void *real_dlsym_find(void);

/* Calls it. */
void *real_dlsym_call(void *handle, const char *name);

/* The object that `address` lies in; NULL if none does. */
struct link_map *real_object(const void *address);

/* Is the program relocated by now? Before that an IFUNC resolver of it may call dlsym, and dlopen
 * would end the process. Known for good once it is so: our constructor asks, too. */
int real_may_open(void);

/* A loaded object as a handle for dlsym, by its path, or as that which `caller` lies in; NULL for
 * the program itself. It is not kept: somebody else has it loaded. */
void *real_handle(const char *path);
void *real_scope(const void *caller);

/* What a search of that scope finds, but nothing that the caller's object defines itself. */
void *real_beside(const void *caller, const char *name);

/* The place in HOOK_LIST of the real driver's function `function`; -1: it is no hooked one. */
int real_hook_of(const void *function);

/* Is `address` inside our own code? Inside libcuda's, or of who stands in for it? */
int real_is_ours(const void *address);
int real_is_driver(const void *address);

#endif
