/* A mixed piece of work in which one call fails, once for each line of stdin, each time in a forked
 * child: a function of the driver (DRIVER=FUNCTION:N[+]:ERROR) or one of libc, called by the
 * library (LIBC=FUNCTION:N, with fail_libc.c in front); NONE= fails nothing. The line is answered
 * by one: what ended with an error, and what was there at the end. What fails is tried once more.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>

#include "failures_peer.h"

#define CHILD_SECONDS 20

static char answer[16384];
static size_t length;
static jmp_buf end;

static void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(answer + length, sizeof answer - length, format, arguments);
    va_end(arguments);
    length += n > 0 && (size_t)n < sizeof answer - length ? (size_t)n : 0;
}

/* Says the driver's function in `what` and its error. */
int failed(const char *what, long long code)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    const char *name = strstr(what, "cachalot_sim_launch") ? "cuLaunchKernel" : strstr(what, "cu");
    if (code)
        say(" %.*s=%lld", (int)strspn(name, letters), name, code);
    return code != 0;
}

void give_up(void)
{
    say(" gave_up=1");
    longjmp(end, 1);
}

static const struct functions linked = {
#define ONE(name, kind, arguments) .name = name,
    SUBMISSION_LIST(TWINS, ONE) ONE(cuMemFreeAsync, , ) ONE(cuMemFreeAsync_ptsz, , )
#undef ONE
};

void submitted(const char *name)
{
    while (cachalot_sim_unfinished()) /* waits with no call that may fail */
        sched_yield();
    if (strncmp(name, "cuMemAlloc", 10) == 0)
        OK(cuMemFree_v2(pooled));
}

static void use_memory(CUstream stream)
{
    static const size_t sizes[] = {1, 700, 4096, 65536, MIB, 3 * MIB, 5 * MIB, 11 * MIB};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    CUdeviceptr block[SIZES], pitched, base;
    size_t pitch, size;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < SIZES; i++)
            OK(cuMemAlloc_v2(&block[i], sizes[i]));
        for (int i = 0; i < SIZES; i += 2) {
            struct cachalot_sim_range range = {block[i], sizes[i], 1};
            OK(cachalot_sim_launch(round ? stream : NULL, 1000, &range, 1));
        }
        for (int i = 0; i < SIZES; i++)
            OK(cuMemFree_v2(block[i]));
    }
    OK(cuMemAllocPitch_v2(&pitched, &pitch, 1000, 10, 4));
    OK(cuMemGetAddressRange_v2(&base, &size, pitched));
    OK(cachalot_sim_launch(stream, 2000000, NULL, 0));
    OK(cuMemcpyDtoHAsync_v2(pinned, pitched, BYTES, stream)); /* the free waits for it */
    OK(cuMemFree_v2(pitched));
}

/* Freed under work, and taken again. */
static void use_pinned(CUstream stream)
{
    static const size_t sizes[] = {100, 4096, 3 * MIB};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    void *host[SIZES], *more;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < SIZES; i++)
            OK(cuMemHostAlloc(&host[i], sizes[i], 0));
        for (int i = 0; i < SIZES; i++) {
            struct cachalot_sim_range range = {(CUdeviceptr)host[i], sizes[i], 0};
            OK(cachalot_sim_launch(stream, 1000, &range, 1));
        }
        for (int i = 0; i < SIZES; i++)
            OK(cuMemFreeHost(host[i]));
    }
    OK(cuMemAllocHost_v2(&more, 4096));
    OK(cuMemFreeHost(more));
}

static void use_other_memory(CUstream stream)
{
    CUdeviceptr a, b, c, range;
    CUmemoryPool own;
    CUmipmappedArray levels;
    CUarray deep;
    CUmemGenericAllocationHandle handle;
    static char registered[4096];
    const CUDA_ARRAY3D_DESCRIPTOR full = {16, 16, 4, CU_AD_FORMAT_HALF, 2, 0};
    const CUmemAllocationProp granule = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemPoolProps pool_of = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    unsigned long long allowed;
    use_pinned(stream);
    OK(cuMemHostRegister_v2(registered, sizeof registered, 0));
    OK(cuMemHostUnregister(registered));
    OK(cuArray3DCreate_v2(&deep, &full));
    OK(cuMipmappedArrayCreate(&levels, &full, 3));
    OK(cuArrayDestroy(deep));
    OK(cuMipmappedArrayDestroy(levels));
    OK(cuMemCreate(&handle, 2 * MIB, &granule, 0));
    OK(cuMemAddressReserve(&range, 2 * MIB, 0, 0, 0));
    OK(cuMemMap(range, 2 * MIB, 0, handle, 0));
    OK(cuMemSetAccess(range, 2 * MIB, &access, 1));
    OK(cuMemGetAccess(&allowed, &access.location, range));
    OK(cuMemUnmap(range, 2 * MIB));
    OK(cuMemAddressFree(range, 2 * MIB));
    OK(cuMemRelease(handle));
    OK(cuMemPoolCreate(&own, &pool_of));
    OK(cuMemAllocAsync(&a, 4096, stream));
    OK(cuMemAllocFromPoolAsync(&b, 4096, own, stream));
    OK(cuMemAllocFromPoolAsync_ptsz(&c, 4096, own, stream));
    OK(cuMemFreeAsync(b, stream));
    OK(cuMemFreeAsync(c, stream));
    OK(cuMemFree_v2(a));
    OK(cuMemAllocAsync_ptsz(&a, 4096, stream));
    OK(cuMemFreeAsync_ptsz(a, stream));
    OK(cuMemAlloc_v2(&b, 3 * MIB));
    OK(cuMemFreeAsync(b, stream)); /* ours */
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolDestroy(own));
}

static void load_code(void)
{
    static const char image[] = "simulated";
    CUmodule module[4];
    CUlibrary library;
    OK(cuModuleLoad(&module[0], "/dev/null"));
    OK(cuModuleLoadData(&module[1], image));
    OK(cuModuleLoadDataEx(&module[2], image, 0, NULL, NULL));
    OK(cuModuleLoadFatBinary(&module[3], image));
    for (int i = 0; i < 4; i++)
        OK(cuModuleUnload(module[i]));
    OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryUnload(library));
    OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
}

#define CAPTURE(suffix, BEGIN, stream)                                                             \
    do {                                                                                           \
        CUdeviceptr inside;                                                                        \
        CUgraph made;                                                                              \
        OK(BEGIN);                                                                                 \
        OK(cuMemsetD8Async##suffix(to, 1, BYTES, stream));                                         \
        OK(cuMemAlloc_v2(&inside, 2 * MIB));                                                       \
        OK(cuMemFree_v2(inside));                                                                  \
        OK(cuStreamEndCapture##suffix(stream, &made));                                             \
        OK(cuGraphDestroy(made));                                                                  \
    } while (0)

static void capture_all(CUstream own)
{
    CUgraph into;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(cuThreadExchangeStreamCaptureMode(&mode)); /* for the oldest two, which are global */
    CAPTURE(, cuStreamBeginCapture(own), own);
    CAPTURE(_ptsz, cuStreamBeginCapture_ptsz(NULL), NULL);
    CAPTURE(, cuStreamBeginCapture_v2(own, CU_STREAM_CAPTURE_MODE_RELAXED), own);
    CAPTURE(_ptsz, cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_RELAXED), NULL);
    OK(cuGraphCreate(&into, 0));
    CAPTURE(, cuStreamBeginCaptureToGraph(own, into, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED),
            own);
    OK(cuGraphCreate(&into, 0));
    CAPTURE(
        _ptsz,
        cuStreamBeginCaptureToGraph_ptsz(NULL, into, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED),
        NULL);
    OK(cuThreadExchangeStreamCaptureMode(&mode));
}

static void more_contexts(void)
{
    for (int version = 2; version <= 4; version++) {
        CUcontext other, popped;
        CUdeviceptr mine, left;
        if (version == 2)
            OK(cuCtxCreate_v2(&other, 0, 0));
        else if (version == 3)
            OK(cuCtxCreate_v3(&other, NULL, 0, 0, 0));
        else
            OK(cuCtxCreate_v4(&other, NULL, 0, 0));
        OK(cuMemAlloc_v2(&mine, 4096));
        OK(cuMemAlloc_v2(&left, 3 * MIB)); /* goes with its context */
        OK(cuMemsetD8_v2(mine, 1, 4096));
        OK(cuCtxPopCurrent_v2(&popped));
        OK(cuMemFree_v2(mine)); /* with another context current */
        if (version == 2)
            OK(cuCtxDestroy(other));
        else
            OK(cuCtxDestroy_v2(other));
    }
    CUgreenCtx green;
    CUcontext of_green;
    OK(cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    OK(cuCtxFromGreenCtx(&of_green, green));
    OK(cuGreenCtxDestroy(green));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuDevicePrimaryCtxRelease(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

/* Until there is no more, then with other sizes: what is idle has to go back in between. */
static void fill_device(void)
{
    CUdeviceptr block[64];
    for (size_t bytes_each = 4 * MIB; bytes_each <= 24 * MIB; bytes_each *= 6) {
        int n = 0;
        while (n < 64 && !failed("cuMemAlloc_v2", cuMemAlloc_v2(&block[n], bytes_each)))
            n++;
        for (; n; n--)
            OK(cuMemFree_v2(block[n - 1]));
    }
}

static void *in_a_thread(void *unused)
{
    CUstream stream;
    CUdeviceptr block;
    (void)unused;
    if (failed("cuCtxSetCurrent", cuCtxSetCurrent(context)) ||
        failed("cuStreamCreateWithPriority", cuStreamCreateWithPriority(&stream, 0, 0)))
        return NULL;
    if (!failed("cuMemAlloc_v2", cuMemAlloc_v2(&block, 4096))) {
        failed("cuMemsetD8Async", cuMemsetD8Async(block, 1, 4096, stream));
        if (failed("cuMemFree_v2", cuMemFree_v2(block)))
            failed("cuMemFree_v2", cuMemFree_v2(block));
    }
    if (failed("cuStreamDestroy", cuStreamDestroy(stream)))
        failed("cuStreamDestroy", cuStreamDestroy(stream));
    return NULL;
}

static void clean_up(CUstream stream)
{
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuArrayDestroy(array[0]));
    OK(cuArrayDestroy(array[1]));
    OK(cuMemFree_v2(managed));
    OK(cuMemFreeHost(pinned));
    OK(cuMemFree_v2(to));
    OK(cuMemFree_v2(from));
    OK(cuStreamDestroy_v2(stream));
    OK(cuCtxSynchronize());
}

static int is_served(void)
{
    CUdeviceptr block;
    while (cachalot_sim_unfinished()) /* what is freed may be pending */
        sched_yield();
    unsigned long long before = cachalot_sim_calls("cuMemAlloc_v2");
    OK(cuMemAlloc_v2(&block, 700));
    int served = before == cachalot_sim_calls("cuMemAlloc_v2");
    OK(cuMemFree_v2(block));
    return served;
}

/* Is everything given back, and does the cache serve? What fails may be this: so more than once. */
static void look_around(void)
{
    CUdeviceptr block;
    size_t available = 0, total = 1;
    for (int i = 0; i < 2 && available != total; i++)
        OK(cuMemGetInfo_v2(&available, &total));
    say(" missing=%lld", (long long)(total - available));
    OK(cuMemAlloc_v2(&block, total - 2 * MIB)); /* all memory is to be had */
    OK(cuMemFree_v2(block));
    int served = 0;
    for (int i = 0; i < 4 && !served; i++)
        served = is_served();
    say(" served=%d", served);
}

static void look_up(void)
{
    void *found;
    CUdriverProcAddressQueryResult result;
    OK(cuGetProcAddress("cuMemAlloc", &found, 13000, 0));
    OK(cuGetProcAddress_v2("cuMemAlloc", &found, 13000, 0, &result));
}

static void work(void)
{
    CUstream stream;
    pthread_t thread;
    if (setjmp(end))
        return;
    prepare();
    look_up();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    use_memory(stream);
    capture_graph(stream);
    submit_all(&linked, stream);
    free_some(&linked, stream);
    settle();
    instantiate(stream);
    use_other_memory(stream);
    allocate_in_graph(stream);
    load_code();
    capture_all(stream);
    CHECK(!pthread_create(&thread, NULL, in_a_thread, NULL));
    CHECK(!pthread_join(thread, NULL));
    more_contexts();
    share_with_peer();
    share_with_device();
    fill_device();
    clean_up(stream);
    look_around();
    OK(cuDevicePrimaryCtxReset(0));
    OK(cuDevicePrimaryCtxReset_v2(0));
}

static void count_calls(void)
{
    const char *name;
    for (size_t i = 0; (name = cachalot_sim_name(i)); i++)
        if (cachalot_sim_calls(name))
            say(" #%s=%llu", name, cachalot_sim_calls(name));
    say(" #*=%llu", cachalot_sim_calls("*"));
}

/* How often the library called functions of libc, in all children up to now. */
static void count_libc(void)
{
    const char *name, *(*count)(int, unsigned long *) = NULL;
    unsigned long calls;
    *(void **)&count = dlsym(RTLD_DEFAULT, "fail_libc_count");
    for (int i = 0; count && (name = count(i, &calls)); i++)
        if (calls)
            say(" #%s=%lu", name, calls);
}

static void send_answer(void)
{
    if (write(STDOUT_FILENO, answer, length) != (ssize_t)length)
        _exit(97);
    length = 0;
}

static _Noreturn void live(char *line, unsigned number)
{
    char text[16];
    snprintf(text, sizeof text, "%u", number);
    setenv("CASE", text, 1);
    alarm(CHILD_SECONDS);
    peer_begin();
    char *value = strchr(line, '=') + 1;
    if (strncmp(line, "DRIVER", 6) == 0)
        setenv("CACHALOT_SIM_FAIL", value, 1);
    void (*fail)(const char *) = NULL;
    *(void **)&fail = dlsym(RTLD_DEFAULT, "fail_libc");
    if (strncmp(line, "LIBC", 4) == 0)
        fail(value);
    work();
    if (strncmp(line, "NONE", 4) == 0)
        count_calls();
    send_answer();
    exit(0);
}

int main(void)
{
    static char line[256];
    setvbuf(stdin, NULL, _IONBF, 0); /* a child that ends would seek back in a file */
    for (unsigned number = 0; fgets(line, sizeof line, stdin); number++) {
        int status = 0;
        line[strcspn(line, "\n")] = 0;
        say("%s:", line);
        send_answer();
        pid_t child = fork();
        if (child == 0)
            live(line, number);
        if (child < 0 || waitpid(child, &status, 0) != child)
            return 95;
        remove_pages();
        if (status)
            say(" died=%#x", (unsigned)status);
        if (strncmp(line, "NONE", 4) == 0)
            count_libc();
        say("\n");
        send_answer();
    }
    return 0;
}
