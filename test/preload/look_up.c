/* What dlsym and dlerror answer for all kinds of names, before and after libcuda is loaded. */
#include <dlfcn.h>
#include <string.h>

#include "case.h"

static void look(void *handle, const char *which, const char *name)
{
    dlerror();
    void *found = dlsym(handle, name);
    const char *error = dlerror(), *colon = error ? strrchr(error, ':') : NULL;
    printf("%s %s: %s%s", which, name, found ? "found" : "none", colon ? colon : "");
    printf(", then %s\n", dlerror() ? "more" : "no more");
    /* An old error is gone after a look-up that succeeds. */
    dlsym(handle, "cuNoSuchFunction");
    dlsym(RTLD_DEFAULT, "malloc");
    printf("  after one that succeeds: %s\n", dlerror() ? "error" : "no error");
}

int main(void)
{
    static const char *const names[] = {
        "cuInit",      "cuMemAlloc", "cuMemAlloc_v2", "cuMemFree_v2",    "cuNoSuchFunction",
        "cudnnCreate", "cudaMalloc", "cudaFree",      "cublasCreate_v2", "cu",
        "c",           "",           "cuda",          "dlsym",           "custom"};
    for (int loaded = 0; loaded < 2; loaded++) {
        void *cuda = loaded ? dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) : NULL;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            if (cuda)
                look(cuda, "handle", names[i]);
            /* cudaMalloc and cudaFree are exported by us and found so; a program that has no cudart
             * calls neither. */
            if (strncmp(names[i], "cuda", 4) != 0)
                look(RTLD_DEFAULT, "default", names[i]);
        }
    }
    return 0;
}
