/* Which function a program has is decided while the loader relocates it, by whether there is CUDA. */
#include <dlfcn.h>

#include "case.h"

static int without(void)
{
    return 0;
}

static int with(void)
{
    return 1;
}

__attribute__((used)) static int (*choose(void))(void)
{
    return dlsym(RTLD_DEFAULT, "cuInit") ? with : without;
}

int has_cuda(void) __attribute__((ifunc("choose")));

int main(void)
{
    SAY(has_cuda());
    return 0;
}
