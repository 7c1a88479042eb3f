/* Uses the runtime, then loads the plugins named. Natively a runtime that has begun needs the
 * loader for nothing, so threads may use it while a constructor holds the loader's lock. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "case.h"

int main(int count, char **argument)
{
    alarm(20);
    SAY(cudaFree(NULL));
    for (int i = 1; i < count; i++) {
        void *plugin = dlopen(argument[i], RTLD_NOW | RTLD_LOCAL);
        if (!plugin)
            fprintf(stderr, "%s\n", dlerror());
        CHECK(plugin);
    }
    return 0;
}
