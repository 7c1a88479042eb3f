/* Somebody else's interposer of dlsym itself, as profilers and overlays have. */
#include <dlfcn.h>

#include "case.h"

static int calls;

int another_count(void);
int another_count(void)
{
    return calls;
}

/* Not sanitized, as ours: sanitizers call it before they have begun. */
__attribute__((no_sanitize("address", "thread", "undefined"))) void *
dlsym(void *restrict handle, const char *restrict name)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    static void *(*next)(void *, const char *);
    for (int i = 0; i < 3 && !next; i++)
        next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    CHECK(next);
    void *found = next(handle, name); /* no tail call: RTLD_NEXT means who stands behind us */
    calls++;
    return found;
}

__attribute__((constructor)) static void loaded(void)
{
    CHECK(dlsym(RTLD_DEFAULT, "malloc"));
}
