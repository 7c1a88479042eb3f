/* The real functions: dlsym of libc (or of an interposer behind us), and the driver's. */
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

/* The table, and whether it is filled. Before that every function in it returns
 * CUDA_ERROR_NOT_FOUND. Use real(), or real_table after it. */
extern struct real_driver real_table __attribute__((visibility("hidden")));
extern _Atomic int real_loaded __attribute__((visibility("hidden")));

/* Fills the table if libcuda is loaded. Returns 1 if the table is filled. Callable from any thread
 * at any time, also under the loader's lock. */
__attribute__((cold)) int real_load(void);

/* The driver's own functions, from the libcuda.so.1 that the process has loaded. A function that
 * the driver lacks, and every function without a driver, returns CUDA_ERROR_NOT_FOUND. */
static inline const struct real_driver *real(void)
{
    if (__builtin_expect(!atomic_load_explicit(&real_loaded, memory_order_acquire), 0))
        real_load();
    return &real_table;
}

/* For functions that a sanitizer may call before its own memory is set up. */
#define REAL_NOT_SANITIZED __attribute__((no_sanitize("address", "thread", "undefined")))

/* The real dlsym; NULL: not found yet. */
void *real_dlsym_find(void);

/* The real dlopen, or the real dlmopen (in_namespace). NULL: there is none. */
void *real_open_find(int in_namespace);

/* Calls the real dlsym. */
void *real_dlsym_call(void *handle, const char *name);

/* The object that contains `address`; NULL: none. */
struct link_map *real_object(const void *address);

/* Is the program relocated? Before that an IFUNC resolver may call dlsym, and dlopen would end the
 * process. Once 1, it stays 1; our constructor asks too. */
int real_may_open(void);

/* A dlsym handle of a loaded object, by its path, or by an address in it; NULL for the program
 * itself. It holds no reference: the object stays loaded for others. */
void *real_handle(const char *path);
void *real_scope(const void *caller);

/* The function `name` in the scope of the caller's object, unless that object defines it itself;
 * else NULL. */
void *real_beside(const void *caller, const char *name);

/* The driver's cuGetProcAddress has answered with `function`. A driver may be in two stages: a small
 * libcuda that hands out functions of another object. If that object exports what a driver exports,
 * its functions count as the driver's from now on. Returns 1 if that is new. */
int real_adopt(const void *function);

/* The index of `function` in HOOK_LIST; -1: it is no hooked function of the driver. */
int real_hook_of(const void *function);

/* Is `address` in our own code? In the driver's, or in a stand-in's? */
int real_is_ours(const void *address);
int real_is_driver(const void *address);

#endif
