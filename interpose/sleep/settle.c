/* Work in any context may use the memory of any other. So each context gets an event, also those that
 * have no allocator. */
#include "interpose/sleep/settle.h"

#include <pthread.h>

#include "interpose/context/context.h"
#include "interpose/context/device_ops.h"
#include "interpose/process/wiped.h"

static struct WIPED settle {
    pthread_mutex_t lock;
    CUcontext context[MOST_CONTEXTS];
    int lost; /* there were more */
} settle;
static const struct wiped wiped WIPED_ENTRY = {&settle, sizeof settle};

/* Puts `to` where `from` is. Returns 0 if that is nowhere. */
static int replace(CUcontext from, CUcontext to)
{
    for (unsigned i = 0; i < MOST_CONTEXTS; i++)
        if (settle.context[i] == from) {
            settle.context[i] = to;
            return 1;
        }
    return 0;
}

void settle_context_made(CUcontext context)
{
    pthread_mutex_lock(&settle.lock);
    if (!replace(context, context) && !replace(NULL, context))
        settle.lost = 1;
    pthread_mutex_unlock(&settle.lock);
}

void settle_context_ended(CUcontext context)
{
    pthread_mutex_lock(&settle.lock);
    if (context)
        replace(context, NULL);
    pthread_mutex_unlock(&settle.lock);
}

static int is_gone(int code)
{
    return code == CUDA_ERROR_INVALID_CONTEXT || code == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static const char *reason_of(int code)
{
    return code == DEVICE_NOT_READY     ? "work on the device does not end"
           : code == DEVICE_DEFERRED    ? "a capture is active"
           : code == DEVICE_UNSUPPORTED ? "this driver has no context events (12.5 has)"
                                        : "the driver reports an error of earlier work";
}

static const char *settle_one(CUcontext handle, uint64_t until_ns)
{
    struct context context = {.handle = handle};
    void *event = NULL;
    int code = driver_ops.fence_record(&context, &event);
    if (code == 0) {
        uint64_t now = driver_ops.now_ns();
        code = driver_ops.fence_wait(&context, event, until_ns > now ? until_ns - now : 0);
    }
    if (event)
        driver_fence_destroy(&context, event);
    return code == 0 || is_gone(code) ? NULL : reason_of(code);
}

const char *settle_all(uint64_t until_ns)
{
    CUcontext all[MOST_CONTEXTS];
    unsigned count = 0;
    pthread_mutex_lock(&settle.lock);
    int lost = settle.lost;
    for (unsigned i = 0; i < MOST_CONTEXTS; i++)
        if (settle.context[i])
            all[count++] = settle.context[i];
    pthread_mutex_unlock(&settle.lock);
    const char *why = lost ? "the process has too many contexts" : NULL;
    for (unsigned i = 0; i < count && !why; i++)
        why = settle_one(all[i], until_ns);
    return why;
}
