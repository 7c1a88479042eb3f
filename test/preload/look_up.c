/* What dlsym and dlerror answer for the names in LOOK_UP_NAMES, by every kind of handle; as a program
 * also before and after libraries of CUDA are loaded, as a plugin in its own scope. */
#include <dlfcn.h>
#include <string.h>

#include "case.h"

/* Only glibc knows what the program itself is called: of that text, what comes behind. An error begins with the path of an object. */
static void look(void *handle, const char *which, const char *name)
{
    Dl_info info;
    dlerror();
    void *found = dlsym(handle, name);
    const char *error = dlerror(), *colon = error ? strrchr(error, ':') : NULL;
    printf("%s %s: %s%s%s", which, name, found ? "found" : "none", colon ? colon : "",
           error && strstr(error, "/libcachalot.so: ") ? " in the library" : "");
    printf(", then %s\n", dlerror() ? "more" : "no more");
    if (found && getenv("LOOK_UP_OWNERS") && dladdr(found, &info))
        printf("  of %s\n", strrchr(info.dli_fname, '/'));
    /* An old error is gone after a look-up that succeeds. */
    dlsym(handle, "cuNoSuchFunction");
    dlsym(RTLD_DEFAULT, "malloc");
    printf("  after one that succeeds: %s\n", dlerror() ? "error" : "no error");
}

static void look_everywhere(const char *when, void *cuda)
{
    char *names = strdup(getenv("LOOK_UP_NAMES")), *rest = names, *name;
    void *math = dlopen("libm.so.6", RTLD_NOW), *program = dlopen(NULL, RTLD_NOW);
    printf("%s\n", when);
    while ((name = strsep(&rest, " "))) {
        look(RTLD_DEFAULT, "default", name);
        look(RTLD_NEXT, "next", name);
        look(math, "libm", name);
        look(program, "program", name);
        if (cuda)
            look(cuda, "handle", name);
    }
    free(names);
}

int run(void);
int run(void)
{
    Dl_info info;
    look_everywhere("first", NULL);
    dlerror();
    dlsym(RTLD_DEFAULT, "cuNoSuchFunction"); /* names the plugin, or the program */
    const char *error = dlerror();
    CHECK(error && dladdr((void *)run, &info));
    printf("named: %d\n", strncmp(error, info.dli_fname, strlen(info.dli_fname)) == 0);
    return 0;
}

int main(int count, char **argument)
{
    run();
    for (int i = 1; i < count; i++) {
        static const int scopes[] = {RTLD_LOCAL, RTLD_GLOBAL};
        for (int j = 0; j < 2; j++) {
            void *cuda = dlopen(argument[i], RTLD_NOW | scopes[j]);
            CHECK(cuda);
            look_everywhere(argument[i], cuda);
        }
    }
    return 0;
}
