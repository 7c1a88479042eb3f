/* Look-ups of driver functions by name: what the program gets from dlsym and cuGetProcAddress. */
#ifndef CACHALOT_INTERPOSE_LOOKUP_H
#define CACHALOT_INTERPOSE_LOOKUP_H

#include "interpose/cuda_api.h"

/* dlsym for names that match cu[A-Z]; `caller` is the return address. Called from dlsym_*.S,
 * perhaps before our constructor and under the loader's lock: no malloc, no lock, no stdio. */
void *lookup_dlsym(void *handle, const char *name, const void *caller)
    __attribute__((visibility("hidden")));

/* What cuGetProcAddress answered, with our wrapper in place of a hooked function. */
CUresult lookup_substitute(CUresult result, void **function);

#endif
