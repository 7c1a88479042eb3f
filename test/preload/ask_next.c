/* A preload that defines a name of CUDA and asks for the next of it, in a program without CUDA. */
#include <dlfcn.h>
#include <string.h>

#include "case.h"

int cudaFree(void *pointer);
int cudaFree(void *pointer)
{
    return pointer != NULL;
}

__attribute__((constructor)) static void ask(void)
{
    void *next = dlsym(RTLD_NEXT, "cudaFree");
    const char *error = dlerror(), *colon = error ? strrchr(error, ':') : "";
    printf("next: %s%s\n", next ? "found" : "none", colon);
    printf("another: %d\n", dlsym(RTLD_NEXT, "cudaMalloc") != NULL);
    printf("default: %d\n", dlsym(RTLD_DEFAULT, "cudaFree") != NULL);
}
