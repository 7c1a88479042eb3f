/* Runs `run` of each plugin named, loaded with RTLD_LOCAL. */
#include <dlfcn.h>

#include "case.h"

int main(int count, char **argument)
{
    for (int i = 1; i < count; i++) {
        void *plugin = dlopen(argument[i], RTLD_NOW | RTLD_LOCAL);
        if (!plugin)
            fprintf(stderr, "%s\n", dlerror());
        CHECK(plugin);
        OK(((int (*)(void))dlsym(plugin, "run"))());
    }
    return 0;
}
