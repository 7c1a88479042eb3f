/* Submits work by every function that the simulated driver has for it, and says what came of it and
 * how many submissions of each kind that were. Argument: how the functions are found (linked,
 * dlsym, proc_address: by the version that the function came with, and by flags for the twins). */
#include <dlfcn.h>
#include <string.h>

#include "submission_world.h"

int failed(const char *what, long long code)
{
    if (code)
        fprintf(stderr, "%s gives %lld\n", what, code);
    return code != 0;
}

void give_up(void)
{
    _exit(99);
}

void submitted(const char *name)
{
    printf("%s: %lu\n", name, settle());
}

/* The address that cuGetProcAddress hands out for `symbol`: its twins by flags, and versions until
 * it is that one. */
static void *by_proc_address(const char *symbol, const void *wanted)
{
    static const int versions[] = {13000, 12080, 12060, 12020, 12000, 11070, 11020, 11000,
                                   10020, 10000, 9000,  8000,  7000,  4000,  3020,  2000};
    char name[64];
    void *address = NULL;
    CUdriverProcAddressQueryResult status;
    snprintf(name, sizeof name, "%s", symbol);
    char *end = name + strlen(name);
    int twin = strncmp(end - 5, "_pt", 3) == 0;
    if (twin)
        *(end -= 5) = 0;
    if (strncmp(end - 3, "_v", 2) == 0)
        end[-3] = 0;
    for (size_t i = 0; i < sizeof versions / sizeof *versions && address != wanted; i++)
        cuGetProcAddress_v2(name, &address, versions[i],
                            twin ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0, &status);
    if (address != wanted)
        fprintf(stderr, "cuGetProcAddress does not hand out %s\n", symbol);
    return address;
}

static void *find(const char *way, const char *symbol, void *linked)
{
    if (!strcmp(way, "linked"))
        return linked;
    void *found = dlsym(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), symbol);
    return strcmp(way, "proc_address") ? found : by_proc_address(symbol, found);
}

static struct functions find_all(const char *way)
{
    struct functions f;
    void *found;
#define ONE(name, kind, arguments)                                                                 \
    found = find(way, #name, (void *)name);                                                        \
    CHECK(found);                                                                                  \
    memcpy(&f.name, &found, sizeof found);
    SUBMISSION_LIST(TWINS, ONE)
    ONE(cuMemFreeAsync, , )
    ONE(cuMemFreeAsync_ptsz, , )
#undef ONE
    return f;
}

int main(int n, char **argument)
{
    CUstream stream;
    CHECK(n == 2);
    prepare();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    struct functions f = find_all(argument[1]);
    capture_graph(stream);
    submit_all(&f, stream);
    free_some(&f, stream);
    instantiate(stream);
    SAY(host_calls);
    SAY(kernels);
    SAY(copies);
    SAY(sets);
    SAY(graphs);
    SAY(host_functions);
    SAY(memory_operations);
    SAY(pool_operations);
    SAY(others);
    return 0;
}
