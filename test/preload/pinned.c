/* Pinned host memory. The argument says what is tried. */
#include "driver_case.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/wait.h>

#define MS 1000000 /* ns */

static void *pin(size_t bytes)
{
    void *host;
    OK(cuMemHostAlloc(&host, bytes, 0));
    return host;
}

static CUstream stream(void)
{
    CUstream made;
    OK(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    return made;
}

static int is_busy(const void *host)
{
    return cachalot_sim_is_busy((CUdeviceptr)host, 1);
}

static void attributes(unsigned char *host, ptrdiff_t at)
{
    CUdeviceptr address = (CUdeviceptr)(host + at), start = 0, device = 0;
    void *inner = NULL;
    size_t bytes = 0;
    CUmemorytype type = 0;
    unsigned long long name = 0;
    unsigned sync = 7;
    CUpointer_attribute many[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                  CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    void *values[] = {&type, &bytes, &device};
    SAY(at);
    SAY(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    SAY(type);
    SAY(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address));
    SAY(device == address);
    SAY(cuPointerGetAttribute(&inner, CU_POINTER_ATTRIBUTE_HOST_POINTER, address));
    SAY(inner == host + at);
    SAY(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address));
    SAY(start == (CUdeviceptr)host);
    SAY(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address));
    SAY(bytes);
    SAY(cuPointerGetAttribute(&name, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
    SAY(cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
    SAY(sync);
    type = 0;
    bytes = 0;
    device = 0;
    SAY(cuPointerGetAttributes(3, many, values, address));
    SAY(type);
    SAY(bytes);
    SAY(device == address);
    start = 0;
    bytes = 0;
    SAY(cuMemGetAddressRange(&start, &bytes, address));
    SAY(start == (CUdeviceptr)host);
    SAY(bytes);
}

static void flags_of(unsigned given)
{
    void *host = NULL;
    unsigned flags = 99;
    CUdeviceptr device = 0;
    SAY(given);
    CUresult result = cuMemHostAlloc(&host, 5000, given);
    SAY(result);
    if (result)
        return;
    SAY(cuMemHostGetFlags(&flags, host));
    SAY(flags);
    SAY(cuMemHostGetFlags(&flags, (char *)host + 4999));
    SAY(cuMemHostGetDevicePointer(&device, (char *)host + 50, 0));
    SAY(device == (CUdeviceptr)host + 50);
    SAY(cuMemHostGetDevicePointer(&device, host, 1));
    memset(host, 1, 5000);
    SAY(cuMemFreeHost(host));
}

/* Answers about live, freed and foreign memory, as natively. */
static void answers(void)
{
    static const size_t sizes[] = {1, 100, 512, 4096, 65536, MIB, MIB + 1, 3 * MIB, 64 * MIB};
    unsigned char *host;
    void *none = NULL, *again = NULL;
    CUdeviceptr device;
    unsigned flags;
    for (unsigned given = 0; given < 10; given++)
        flags_of(given);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        host = pin(sizes[i]);
        void *beside = pin(sizes[i]);
        memset(host, 7, sizes[i]);
        attributes(host, 0);
        attributes(host, (ptrdiff_t)(sizes[i] / 2));
        SAY(cuMemFree((CUdeviceptr)host));
        SAY(cuMemHostUnregister(host) != 0);
        SAY(cuMemHostRegister(host, 1, 0));
        SAY(cuMemFreeHost(host + sizes[i] / 2) == 0 || sizes[i] == 1);
        if (sizes[i] == 1)
            continue;
        SAY(cuMemFreeHost(host));
        SAY(cuMemFreeHost(host));
        SAY(cuMemHostGetFlags(&flags, host));
        SAY(cuMemHostGetDevicePointer(&device, host, 0));
        attributes(host, 0);
        SAY(cuMemFreeHost(beside));
    }
    host = pin(100);
    attributes(host, 99);
    attributes(host, 100);
    SAY(cuMemFreeHost(NULL));
    SAY(cuMemFreeHost(&none));
    SAY(cuMemHostAlloc(NULL, 100, 0));
    SAY(cuMemAllocHost(NULL, 100));
    SAY(cuMemHostAlloc(&again, 0, 0));
    SAY(again == NULL);
    SAY(cuMemHostAlloc(&again, SIZE_MAX, 0));
    SAY(cuMemHostAlloc(&again, SIZE_MAX - 4096, 4));
    SAY(cuMemHostAlloc(&again, (size_t)1 << 62, 0));
    SAY(cuMemAllocHost(&again, (size_t)-1));
    SAY(cuMemAllocHost(&again, 4096));
    SAY(cuMemHostGetFlags(&flags, again));
    SAY(flags);
    SAY(cuMemFreeHost(again));
    device = make(4096);
    SAY(cuMemFreeHost((void *)device));
    SAY(cuMemFree(device));
}

/* Calls of the driver for 1000 pairs of each size. */
static void hits(void)
{
    static const size_t sizes[] = {1, 4096, MIB, 3 * MIB, 40 * MIB};
    unsigned long long made = cachalot_sim_calls("cuMemHostAlloc");
    unsigned long long freed = cachalot_sim_calls("cuMemFreeHost");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int turn = 0; turn < 1000; turn++)
            OK(cuMemFreeHost(pin(sizes[i])));
    SAY(cachalot_sim_calls("cuMemHostAlloc") - made);
    SAY(cachalot_sim_calls("cuMemFreeHost") - freed);
}

/* A kernel reads a block for a while. */
static unsigned char *pin_used(CUstream of)
{
    unsigned char *host = pin(MIB);
    struct cachalot_sim_range range = {(CUdeviceptr)host, MIB, 0};
    OK(cachalot_sim_launch(of, 200 * MS, &range, 1));
    return host;
}

/* It is freed: its memory must not come again until the kernel is done. The free does not wait. */
static void fence(CUstream of)
{
    OK(cuMemFreeHost(pin_used(of)));
    SAY(cachalot_sim_unfinished() > 0);
    unsigned char *next = pin(MIB);
    SAY(is_busy(next));
    OK(cuStreamSynchronize(of));
    OK(cuMemFreeHost(next));
    for (int i = 0; i < 20; i++)
        OK(cuMemFreeHost(pin(MIB)));
}

/* What the host sees is done when a free returns. */
static void copies(void)
{
    CUstream at = stream();
    unsigned char *host = pin(4096), *other = pin(100);
    CUdeviceptr block = make(4096);
    for (int i = 1; i < 6; i++) {
        OK(cuMemsetD8(block, (unsigned char)i, 4096));
        OK(cuCtxSynchronize());
        OK(cachalot_sim_launch(at, 20 * MS, NULL, 0));
        OK(cuMemcpyDtoHAsync(host, block, 4096, at));
        OK(cuMemFreeHost(other));
        SAY(host[4095]);
        other = pin(100);
    }
}

static void waits(void)
{
    CUstream at = stream();
    unsigned char *host = pin(4096);
    uint64_t begin = cachalot_sim_now();
    OK(cachalot_sim_launch(at, 20 * MS, NULL, 0));
    OK(cuMemFreeHost(host));
    SAY(cachalot_sim_now() - begin >= 20 * MS);
}

/* Blocks used and freed while a graph is captured. */
static void capture(void)
{
    CUstream at = stream(), busy = stream();
    CUgraph graph;
    OK(cuStreamBeginCapture(at, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemFreeHost(pin_used(busy)));
    unsigned char *next = pin(MIB);
    CHECK(!is_busy(next));
    OK(cuStreamEndCapture(at, &graph));
    unsigned char *third = pin(MIB);
    CHECK(!is_busy(third));
    OK(cuStreamSynchronize(busy));
    OK(cuMemFreeHost(next));
    OK(cuMemFreeHost(third));
    for (int i = 0; i < 20; i++)
        OK(cuMemFreeHost(pin(MIB)));
}

/* The work of a context in which nothing was allocated, and the memory of the first one. */
static void contexts(CUcontext first)
{
    unsigned char *host = pin(MIB);
    CUcontext second = new_context(0);
    CUstream at = stream();
    struct cachalot_sim_range range = {(CUdeviceptr)host, MIB, 0};
    OK(cachalot_sim_launch(at, 200 * MS, &range, 1));
    OK(cuCtxSetCurrent(first));
    OK(cuMemFreeHost(host));
    unsigned char *next = pin(MIB);
    CHECK(!is_busy(next));
    OK(cuCtxSetCurrent(second));
    OK(cuStreamSynchronize(at));
    OK(cuCtxSetCurrent(first));
    OK(cuMemFreeHost(next));
    for (int i = 0; i < 20; i++)
        OK(cuMemFreeHost(pin(MIB)));
    OK(cuCtxDestroy(second));
    OK(cuMemFreeHost(pin(MIB)));
}

/* Memory ends with its context, whose handle comes back. */
static void ends(const char *how)
{
    for (int i = 0; i < 5; i++) {
        CUcontext context = !strcmp(how, "destroy") ? new_context(0) : NULL;
        CUstream at = stream();
        unsigned char *held = pin(4096), *freed = pin(MIB);
        struct cachalot_sim_range range = {(CUdeviceptr)freed, MIB, 0};
        OK(cachalot_sim_launch(at, MS, &range, 1));
        OK(cuMemFreeHost(freed));
        end_context(how, context);
        SAY(cuMemFreeHost(held));
        begin();
    }
}

static void forked(void)
{
    void *host = pin(4096);
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        void *own;
        SAY(cuMemHostAlloc(&own, 100, 0) != 0);
        SAY(cuMemFreeHost(host) != 0);
        _exit(0);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    SAY(status);
    OK(cuMemFreeHost(host));
    OK(cuMemFreeHost(pin(4096)));
}

/* Idle memory goes back after a while. */
static void idle(void)
{
    unsigned long long before = cachalot_sim_calls("cuMemFreeHost");
    void *blocks[8];
    for (int i = 0; i < 8; i++)
        blocks[i] = pin(8 * MIB);
    for (int i = 0; i < 8; i++)
        OK(cuMemFreeHost(blocks[i]));
    for (int i = 0; i < 1200 && cachalot_sim_calls("cuMemFreeHost") - before < 8; i++)
        usleep(100000);
    SAY(cachalot_sim_calls("cuMemFreeHost") - before >= 8);
}

/* A program at work, whose idle memory goes back when the host is short, within 20 s. */
static void at_work(void)
{
    unsigned long long before = cachalot_sim_calls("cuMemFreeHost");
    void *blocks[8];
    for (int i = 0; i < 8; i++)
        blocks[i] = pin(8 * MIB);
    for (int i = 0; i < 8; i++)
        OK(cuMemFreeHost(blocks[i]));
    for (int i = 0; i < 1000 && cachalot_sim_calls("cuMemFreeHost") - before < 8; i++) {
        OK(cuMemFreeHost(pin(100)));
        usleep(20000);
    }
    SAY(cachalot_sim_calls("cuMemFreeHost") - before >= 8);
}

/* The host has 64 MiB for pinned memory. */
static void full(void)
{
    void *one = pin(30 * MIB), *two = pin(30 * MIB), *three = NULL;
    SAY(cuMemHostAlloc(&three, 30 * MIB, 0));
    SAY(three == NULL);
    OK(cuMemFreeHost(one));
    OK(cuMemFreeHost(two));
    one = pin(61 * MIB);
    OK(cuMemFreeHost(one));
    one = pin(50 * MIB);
    OK(cuMemFreeHost(one));
    OK(cuMemHostAlloc(&two, 50 * MIB, CU_MEMHOSTALLOC_WRITECOMBINED)); /* of another pool */
    OK(cuMemFreeHost(two));
}

static void *late;

static void free_late(void)
{
    cuMemFreeHost(late);
}

/* A network card has registered a block: its memory is not used again. */
static void registered(void)
{
    unsigned on = 1;
    void *host = pin(64 * KIB);
    CUresult result =
        cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (CUdeviceptr)host);
    SAY(result);
    attributes(host, 0);
    OK(cuMemFreeHost(host));
    for (int i = 0; i < 50; i++) {
        attributes(pin(64 * KIB), 0);
    }
}

static void *pairs(void *context)
{
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < 20000; i++) {
        unsigned char *host = pin((size_t)1 << (i % 18));
        host[0] = 1;
        OK(cuMemFreeHost(host));
    }
    return NULL;
}

static void threads(CUcontext context)
{
    pthread_t thread[8];
    for (int i = 0; i < 8; i++)
        CHECK(!pthread_create(&thread[i], NULL, pairs, context));
    for (int i = 0; i < 8; i++)
        CHECK(!pthread_join(thread[i], NULL));
}

int main(int count, char **argument)
{
    const char *what = count > 1 ? argument[1] : "answers";
    if (!strcmp(what, "late"))
        atexit(free_late);
    CUcontext context = begin();
    if (!strcmp(what, "answers"))
        answers();
    else if (!strcmp(what, "hits"))
        hits();
    else if (!strcmp(what, "fence"))
        fence(stream());
    else if (!strcmp(what, "copies"))
        copies();
    else if (!strcmp(what, "waits"))
        waits();
    else if (!strcmp(what, "capture"))
        capture();
    else if (!strcmp(what, "contexts"))
        contexts(context);
    else if (!strcmp(what, "forked"))
        forked();
    else if (!strcmp(what, "idle"))
        idle();
    else if (!strcmp(what, "at work"))
        at_work();
    else if (!strcmp(what, "full"))
        full();
    else if (!strcmp(what, "registered"))
        registered();
    else if (!strcmp(what, "threads"))
        threads(context);
    else if (!strcmp(what, "late"))
        late = pin(4096);
    else
        ends(what);
    return 0;
}
