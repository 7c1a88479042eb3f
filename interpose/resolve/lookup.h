/* Look-ups of functions by name: what the program gets from dlsym and cuGetProcAddress. */
#ifndef CACHALOT_INTERPOSE_RESOLVE_LOOKUP_H
#define CACHALOT_INTERPOSE_RESOLVE_LOOKUP_H

#include "interpose/resolve/cuda_api.h"

struct lookup {
    void *answer;
    void *next; /* not NULL: not ours to answer; this function is, called as ours was */
};

/* dlsym for names that begin with `cu`, and for all others until the real one is known; `caller` is
 * the return address. Called from dlsym_*.S, perhaps before our constructor and under the loader's
 * lock: no malloc, no lock, no stdio. */
struct lookup lookup_dlsym(void *handle, const char *name, const void *caller)
    __attribute__((visibility("hidden")));

/* What cuGetProcAddress answered, with our wrapper in place of a hooked function. */
CUresult lookup_substitute(CUresult result, void **function);

#endif
