/* What a launch costs for being watched: batches of launches through the linked cuLaunchKernel, which is whoever stands in front of
 * the driver, and through libcuda's own, by turns in one process, so that what the machine does meanwhile hits both alike.
 * usage: watch_cost ROUNDS; one JSON line: of each way its medians (through, past) and, of the differences of neighbours, median and
 * quartiles, ns. Natively the difference is that of a call through the linkage table: what this program itself is wrong by.
 * "refused" launches have no function: the driver turns them away at once, so nearly all of their time is on the way there. */
#include <cuda.h>
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MUST(call)                                                                                 \
    do {                                                                                           \
        CUresult must_result = (call);                                                             \
        if (must_result != CUDA_SUCCESS) {                                                         \
            fprintf(stderr, "%s: error %d\n", #call, must_result);                                 \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

typedef CUresult (*launch_function)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                    unsigned, unsigned, CUstream, void **, void **);

static const char empty_kernel[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                   ".visible .entry nothing() { ret; }\n";

/* dlsym is answered by who stands in front; the symbol table of the library is not. */
static int in_symbols(struct dl_phdr_info *info, size_t size, void *found)
{
    const ElfW(Dyn) *dynamic = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL, *file = strrchr(info->dlpi_name, '/');
    (void)size;
    if (strncmp(file ? file + 1 : info->dlpi_name, "libcuda.so", 10) != 0)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
        uintptr_t at =
            dynamic->d_un.d_ptr + (dynamic->d_un.d_ptr < info->dlpi_addr ? info->dlpi_addr : 0);
        if (dynamic->d_tag == DT_SYMTAB)
            symbols = (const ElfW(Sym) *)at;
        if (dynamic->d_tag == DT_STRTAB)
            names = (const char *)at;
    }
    /* The names lie behind the symbols: so the linkers write them. */
    for (; symbols && names && (const char *)symbols < names; symbols++)
        if (symbols->st_value && !strcmp(names + symbols->st_name, "cuLaunchKernel")) {
            *(launch_function *)found = (launch_function)(info->dlpi_addr + symbols->st_value);
            return 1;
        }
    return 0;
}

static double batch(launch_function launch, CUfunction function, CUstream stream, int count)
{
    struct timespec begin, end;
    MUST(cuCtxSynchronize());
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < count; i++)
        if ((launch(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL) == CUDA_SUCCESS) !=
            (function != NULL))
            exit(2);
    clock_gettime(CLOCK_MONOTONIC, &end);
    MUST(cuCtxSynchronize());
    return ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) /
           count;
}

static int order(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static double quantile(double *values, int count, double share)
{
    qsort(values, (size_t)count, sizeof *values, order);
    return values[(int)((count - 1) * share)];
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1000;
    launch_function past = NULL;
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CUstream own;
    CUdeviceptr block;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, empty_kernel));
    MUST(cuModuleGetFunction(&function, module, "nothing"));
    MUST(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc_v2(&block, 4096)); /* something is served, so launches are watched */
    dl_iterate_phdr(in_symbols, &past);
    double *through = malloc((size_t)rounds * 3 * sizeof *through);
    if (!past || !through || rounds < 1) {
        fprintf(stderr, "watch_cost: no cuLaunchKernel in libcuda's symbol table, or no ROUNDS\n");
        return 1;
    }
    const struct {
        const char *name;
        CUfunction function;
        CUstream stream;
        int count; /* of launches less than the device's queue takes: none waits for room */
    } ways[] = {{"refused, non-blocking", NULL, own, 2000},
                {"refused, legacy", NULL, NULL, 2000},
                {"launch, non-blocking", function, own, 500},
                {"launch, legacy", function, NULL, 500}};
    double *beside = through + rounds, *more = beside + rounds;
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        for (int round = -10; round < rounds; round++) {
            double ns[2];
            for (int turn = 0; turn < 2; turn++)
                ns[(round ^ turn) & 1] =
                    batch((round ^ turn) & 1 ? past : cuLaunchKernel, ways[way].function,
                          ways[way].stream, ways[way].count);
            if (round >= 0) {
                through[round] = ns[0];
                beside[round] = ns[1];
                more[round] = ns[0] - ns[1];
            }
        }
        printf("%s\"%s\": [%.1f, %.1f, %.1f, %.1f, %.1f]", way ? ", " : "{", ways[way].name,
               quantile(through, rounds, 0.5), quantile(beside, rounds, 0.5),
               quantile(more, rounds, 0.5), quantile(more, rounds, 0.25),
               quantile(more, rounds, 0.75));
    }
    printf("}\n");
    MUST(cuMemFree_v2(block));
    free(through);
    return 0;
}
