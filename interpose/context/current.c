#include "interpose/context/current.h"

#include "interpose/resolve/real_driver.h"

_Thread_local struct context_note context_note;
_Thread_local int context_bound, context_switches;

void context_switch_begin(void)
{
    context_switches++;
    context_note = (struct context_note){0, NULL, NULL};
    context_bound = 0;
}

void context_switch_end(void)
{
    context_switches--;
}

CUresult context_push(CUcontext handle)
{
    context_switches++;
    CUresult result = real()->cuCtxPushCurrent_v2(handle);
    if (result != CUDA_SUCCESS)
        context_switches--;
    return result;
}

void context_pop(void)
{
    CUcontext popped;
    /* A refused pop is tried once more: otherwise the program would continue in another context. */
    if (real()->cuCtxPopCurrent_v2(&popped) != CUDA_SUCCESS)
        real()->cuCtxPopCurrent_v2(&popped);
    context_switches--;
}
