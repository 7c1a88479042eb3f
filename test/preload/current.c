/* What is current is what the driver says, by whichever call it was changed since the last request:
 * without a context none succeeds, though the thread's cache has a block. Argument: primary; own
 * (the only context is one of the program's own); called (a tool's function asks within the call);
 * helped (within one of our own calls, on a thread that has no context); detached (threads attach to
 * a context and detach from it, and it serves afterwards). */
#include "driver_case.h"

#include <dlfcn.h>
#include <pthread.h>

#pragma weak cachalot_sim_subscribe                        /* it runs on GPUs, too (test/gpu) */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* attached to and detached from */

enum { THREADS = 4 };

typedef CUresult (*push_function)(CUcontext context);
typedef CUresult (*pop_function)(CUcontext *context);

/* Says what a request gets; one that is served leaves its block in the thread's cache. */
static void ask(const char *when)
{
    CUdeviceptr block;
    CUresult result = cuMemAlloc(&block, 1000);
    printf("%s: %d\n", when, (int)result);
    if (result == CUDA_SUCCESS)
        OK(cuMemFree(block));
}

static void within(const char *function, int returning)
{
    if (!strcmp(function, "cuCtxSetCurrent"))
        ask(returning ? "at its end" : "at its begin");
}

static void push_and_pop(CUcontext context, push_function push, pop_function pop)
{
    CUcontext popped;
    ask("current");
    SAY(pop(&popped));
    SAY(popped == context);
    ask("popped");
    SAY(push(context)); /* the older one refuses what is current anywhere */
    ask("pushed");
    SAY(push(context));
    SAY(pop(NULL));
    ask("pushed and popped");
}

static void *in_turn(void *context)
{
    ask("a thread's own");
    OK(cuCtxSetCurrent(context));
    ask("set there");
    OK(cuCtxSetCurrent(NULL));
    ask("taken away there");
    return NULL;
}

/* Of whatever is called, also by us. */
static void within_all(const char *function, int returning)
{
    static _Thread_local int inside;
    CUcontext current = NULL;
    CUdeviceptr block;
    if (inside++ == 0 && !returning && function && !cuCtxGetCurrent(&current) && current &&
        !cuMemAlloc(&block, 1000))
        OK(cuMemFree(block));
    inside--;
}

/* We must have memory given back for it, so make the context current for a moment. */
static void *without(void *unused)
{
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    ask("none");
    cachalot_sim_subscribe(within_all);
    SAY(cuMemCreate(&handle, (size_t)1 << 50, &properties, 0));
    cachalot_sim_subscribe(NULL);
    ask("still none");
    return unused;
}

static void *attach_and_detach(void *context)
{
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < 20000; i++) {
        CUcontext attached;
        OK(cuCtxAttach(&attached, 0));
        OK(cuCtxDetach(attached));
    }
    return NULL;
}

static void in_threads(void *(*function)(void *), void *argument)
{
    pthread_t thread[THREADS];
    int threads = function == without ? 1 : THREADS;
    for (int i = 0; i < threads; i++)
        OK(pthread_create(&thread[i], NULL, function, argument));
    for (int i = 0; i < threads; i++)
        OK(pthread_join(thread[i], NULL));
}

static void change(CUcontext context)
{
    pthread_t thread;
    push_and_pop(context, cuCtxPushCurrent_v2, cuCtxPopCurrent_v2);
    push_and_pop(context, (push_function)dlsym(RTLD_DEFAULT, "cuCtxPushCurrent"),
                 (pop_function)dlsym(RTLD_DEFAULT, "cuCtxPopCurrent"));
    OK(cuCtxSetCurrent(NULL));
    ask("taken away");
    OK(cuCtxSetCurrent(context));
    ask("set");
    OK(pthread_create(&thread, NULL, in_turn, context));
    OK(pthread_join(thread, NULL));
    ask("after another thread's");
}

/* It is attached to once more, detached from, and ends with the second time, as one that is
 * destroyed does; the next one may have its handle. */
static void end_by_detaching(CUcontext context)
{
    CUcontext attached;
    CUdeviceptr block = make(3 * MIB);
    OK(cuCtxAttach(&attached, 0));
    SAY(attached == context);
    OK(cuCtxDetach(context));
    ask("detached once");
    OK(cuMemsetD8(block, 1, 3 * MIB));
    SAY(cuMemFree(block));
    make(MIB / 2);
    make(5 * MIB);
    OK(cuCtxDetach(context));
    ask("ended");
    SAY(cuCtxDetach(context));
    for (int i = 0; i < 3; i++) {
        CUcontext next = new_context(0);
        block = make(5 * MIB);
        OK(cuMemsetD8(block, 1, 5 * MIB));
        ask("the next one");
        OK(i ? cuCtxDetach(next) : cuCtxDestroy(next));
        ask("and its end");
    }
}

int main(int count, char **argument)
{
    CHECK(count == 2);
    OK(cuInit(0));
    int own = !strcmp(argument[1], "own");
    CUcontext context = own || !strcmp(argument[1], "detached") ? new_context(0) : begin();
    if (!strcmp(argument[1], "helped") || !strcmp(argument[1], "detached")) {
        OK(cuMemFree(make(100 * MIB)));
        ask("current");
        in_threads(argument[1][0] == 'h' ? without : attach_and_detach, context);
        for (int i = 0; i < 1000; i++)
            OK(cuMemFree(make(1000)));
        return 0;
    }
    int called = !strcmp(argument[1], "called");
    if (called)
        cachalot_sim_subscribe(within);
    change(context);
    if (called)
        cachalot_sim_subscribe(NULL);
    if (own) {
        end_by_detaching(context);
        return 0;
    }
    OK(cuDevicePrimaryCtxReset(0));
    ask("reset");
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    ask("retained again");
    OK(cuDevicePrimaryCtxRelease(0));
    ask("released");
    new_context(0);
    ask("created");
    return 0;
}
