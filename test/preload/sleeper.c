/* Has blocks of many sizes, and does what lines of input ask for. */
#include "sleeper.h"

#include <signal.h>
#include <sys/wait.h>

static const size_t sizes[] = {1,       512,     700,     4096,     100 * KIB, MIB,
                               3 * MIB, 5 * MIB, 7 * MIB, 14 * MIB, 64 * KIB,  8 * MIB};
enum { BLOCKS = 2 * sizeof sizes / sizeof *sizes };
static struct block block[BLOCKS];
static CUcontext context;
static CUstream stream, captured;
static CUgraphExec graph;
static volatile int spins;

static void make_blocks(void)
{
    CUdeviceptr idle[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        block[i] = (struct block){make(sizes[i / 2]), sizes[i / 2], (uint32_t)i * 7919 + 1};
        idle[i] = make(sizes[i / 2]);
        fill_block(&block[i], stream);
    }
    for (int i = 0; i < BLOCKS; i++)
        OK(cuMemFree(idle[i]));
}

static long long check(void)
{
    size_t wrong = 0;
    for (int i = 0; i < BLOCKS; i++)
        wrong += wrong_bytes(&block[i], stream);
    return (long long)wrong;
}

static long long launch(void)
{
    struct cachalot_sim_range range = {block[0].address, block[0].bytes, 0};
    return cachalot_sim_launch(stream, 1000, &range, 1);
}

static long long set(void)
{
    return cuMemsetD8(block[1].address, byte_at(block[1].number, 0), 1);
}

static long long attribute(void)
{
    CUmemorytype type = 0;
    CUresult result =
        cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block[5].address);
    return result ? (long long)result : type != CU_MEMORYTYPE_DEVICE;
}

static long long export(void)
{
    CUipcMemHandle handle;
    return cuIpcGetMemHandle(&handle, block[20].address);
}

static long long begin_capture(void)
{
    return cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static long long end_capture(void)
{
    CUgraph made;
    struct cachalot_sim_range range = {block[9].address, block[9].bytes, 0};
    OK(cachalot_sim_launch(captured, 1000, &range, 1));
    CUresult result = cuStreamEndCapture(captured, &made);
    return result ? (long long)result : (long long)cuGraphInstantiateWithFlags(&graph, made, 0);
}

static long long launch_graph(void)
{
    return cuGraphLaunch(graph, stream);
}

static long long spin(void)
{
    spins = 0;
    return cachalot_sim_launch_spin(stream, &spins, NULL, 0);
}

static long long end_spin(void)
{
    __atomic_store_n(&spins, 1, __ATOMIC_RELEASE);
    return cuStreamSynchronize(stream);
}

/* A request that needs more mapped memory. */
static long long grow(void)
{
    struct block more = {make(40 * MIB), 40 * MIB, 5};
    fill_block(&more, stream);
    long long wrong = (long long)wrong_bytes(&more, stream);
    OK(cuMemFree(more.address));
    return wrong;
}

/* Neither needs the device: the process sleeps on. */
static long long reuse(void)
{
    CUdeviceptr small;
    CUresult result = cuMemAlloc(&small, 4096);
    return result ? (long long)result : (long long)cuMemFree(small);
}

static long long available(void)
{
    size_t bytes = 0, total;
    OK(cuMemGetInfo(&bytes, &total));
    return (long long)bytes;
}

static long long in_context(void)
{
    CUcontext other = new_context(0);
    CUdeviceptr there = make(3 * MIB);
    OK(cuMemsetD8(there, 1, 3 * MIB));
    OK(cuCtxDestroy(other));
    OK(cuCtxSetCurrent(context));
    return 0;
}

static long long fork_child(void)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(7);
    return waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : -1;
}

static long long go_to_sleep(void)
{
    return call_sleep(0);
}

static long long go_to_sleep_held(void)
{
    return call_sleep(2);
}

static long long go_to_sleep_partly(void)
{
    return call_sleep(1);
}

static long long wake(void)
{
    return call_wake();
}

/* Calls a function of the driver, which the simulated one refuses. */
static long long call(const char *name)
{
    CUresult (*function)(void *, void *, void *, size_t, void *, void *) =
        (CUresult(*)(void *, void *, void *, size_t, void *, void *))dlsym(RTLD_DEFAULT, name);
    CHECK(function);
    return function(NULL, NULL, NULL, 0, NULL, NULL);
}

static const struct {
    const char *name;
    long long (*act)(void);
} actions[] = {{"check", check},
               {"launch", launch},
               {"set", set},
               {"attribute", attribute},
               {"export", export},
               {"begin_capture", begin_capture},
               {"end_capture", end_capture},
               {"launch_graph", launch_graph},
               {"spin", spin},
               {"end_spin", end_spin},
               {"grow", grow},
               {"reuse", reuse},
               {"available", available},
               {"in_context", in_context},
               {"fork", fork_child},
               {"sleep", go_to_sleep},
               {"sleep_held", go_to_sleep_held},
               {"sleep_partly", go_to_sleep_partly},
               {"wake", wake}};

int main(void)
{
    char line[64];
    context = begin();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    make_blocks();
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (!strncmp(line, "call ", 5))
            printf("%s: %lld\n", line, call(line + 5));
        for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
            if (!strcmp(line, actions[i].name))
                printf("%s: %lld\n", line, actions[i].act());
        fflush(stdout);
    }
    return 0;
}
