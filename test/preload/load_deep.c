/* Runs `run` of a plugin that is loaded so that preloads do not reach it: `deep` (RTLD_DEEPBIND) or
 * `namespace` (dlmopen); with a third argument, of libcuda, after a look-up in that. */
#include <dlfcn.h>
#include <string.h>

#include "case.h"

int main(int count, char **argument)
{
    CHECK(count == 3 || count == 4);
    if (count == 4)
        CHECK(dlsym(dlopen(argument[3], RTLD_NOW), "cuMemAlloc_v2"));
    void *plugin = strcmp(argument[1], "deep") ? dlmopen(LM_ID_NEWLM, argument[2], RTLD_NOW)
                                               : dlopen(argument[2], RTLD_NOW | RTLD_DEEPBIND);
    if (!plugin)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(plugin);
    SAY(((int (*)(void))dlsym(plugin, "run"))());
    return 0;
}
