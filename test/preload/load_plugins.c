/* Runs `run` of each plugin named, loaded with RTLD_LOCAL. After the word `close` each is closed
 * again; after `flush` all streams are flushed when the program ends. */
#include <dlfcn.h>
#include <string.h>

#include "case.h"

static void flush(void)
{
    fflush(NULL);
}

int main(int count, char **argument)
{
    int closing = 0;
    for (int i = 1; i < count; i++) {
        if (strcmp(argument[i], "close") == 0) {
            closing = 1;
            continue;
        }
        if (strcmp(argument[i], "flush") == 0) {
            OK(atexit(flush));
            continue;
        }
        void *plugin = dlopen(argument[i], RTLD_NOW | RTLD_LOCAL);
        if (!plugin)
            fprintf(stderr, "%s\n", dlerror());
        CHECK(plugin);
        OK(((int (*)(void))dlsym(plugin, "run"))());
        if (closing)
            OK(dlclose(plugin));
    }
    return 0;
}
