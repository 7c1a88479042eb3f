/* What is current is what the driver says, by whichever call it was changed since the last request:
 * without a context none succeeds, though the thread's cache has a block. Argument: primary; own
 * (the only context is one of the program's own); called (a tool's function asks within the call). */
#include "driver_case.h"

#include <dlfcn.h>
#include <pthread.h>

#pragma weak cachalot_sim_subscribe                        /* it runs on GPUs, too (test/gpu) */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* attached to and detached from */

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
    CUcontext context = own ? new_context(0) : begin();
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
