/*
 * The start of cudart 12 and 13.0: they ask for all names that they know. A driver that is older
 * than a name does not find it.
 */
#include "start_13.h"

#include <dlfcn.h>

CUresult runtime_start(struct runtime_start *start)
{
    start->version = 13000;
    return start_13(start, dlopen("libcuda.so.1", RTLD_NOW), start->version);
}
