#include "interpose/context/capture.h"

#include <sched.h>

#include "interpose/context/context.h"
#include "interpose/context/device_ops.h"
#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"
#include "interpose/lifecycle/thread_exit.h"
#include "stats/os/pause.h"

struct capture {
    struct map_node node; /* key: the stream, and the thread for a per-thread stream */
    CUcontext context;    /* the stream's; NULL: the driver does not say */
    uint64_t number;      /* of all captures, in the order of their begin */
};

#define THREAD_KEYS ((uint64_t)1 << 62) /* beyond any address */

/* A thread captures on its own default stream in one context at a time. */
static uint64_t key_of(CUstream stream, int per_thread)
{
    if (stream == CU_STREAM_PER_THREAD || (per_thread && !stream))
        return THREAD_KEYS | driver_ops.thread_id();
    return (uint64_t)(uintptr_t)stream;
}

int capture_active(void)
{
    return atomic_load(&process->captures) != 0;
}

int capture_record_begin(void)
{
    atomic_fetch_add(&process->recordings, 1);
    if (!capture_active())
        return 1;
    capture_record_end();
    return 0;
}

void capture_record_end(void)
{
    atomic_fetch_sub(&process->recordings, 1);
}

#define MOST_WAITS 1000 /* of 1 ms */

/* The count goes up first, so no new recording begins; those under way are waited for. They are
 * short, but for a free on a driver without context events, which waits for the device, and the
 * device perhaps for us: then go on. */
CUcontext capture_before_begin(CUstream stream)
{
    CUcontext context = context_of_stream(stream); /* asked while the stream does not capture */
    lane_capture_begins(process->domain);          /* its mark is recorded while that is allowed */
    atomic_fetch_add(&process->captures, 1);
    for (int i = 0; atomic_load(&process->recordings) && i < MOST_WAITS; i++) {
        sched_yield();
        if (i > MOST_WAITS / 2)
            pause_ns(1000000);
    }
    return context;
}

/* Recording is allowed again before a lane is: who may not record relies on there being none. */
static void captures_less_one(void)
{
    int last = atomic_fetch_sub(&process->captures, 1) == 1;
    lane_capture_ended(process->domain);
    if (last && process_serving())
        domain_captures_ended(process->domain);
}

static int remove_capture(uint64_t key)
{
    pthread_mutex_lock(&process->capture_lock);
    struct map_node *node = map_remove(&process->capturing, key);
    if (node)
        slab_give(&process->capture_nodes, node);
    pthread_mutex_unlock(&process->capture_lock);
    return node != NULL;
}

/* Returns 0 without memory of the host. */
static int add_capture(uint64_t key, CUcontext context)
{
    pthread_mutex_lock(&process->capture_lock);
    process->capture_nodes.item_bytes = sizeof(struct capture);
    struct capture *capture = slab_take(&process->capture_nodes);
    if (capture) {
        capture->node.key = key;
        capture->context = context;
        capture->number = ++process->captures_begun;
        if (map_insert(&process->capturing, &capture->node)) {
            slab_give(&process->capture_nodes, capture);
            capture = NULL;
        }
    }
    pthread_mutex_unlock(&process->capture_lock);
    return capture != NULL;
}

/* A per-thread stream ends with its thread, and a capture on it too. Nothing is asked of the driver
 * in a thread that is going: what waited for the capture's end goes along with the next free. */
void capture_thread_ends(void)
{
    if (!process_serving() || !capture_active() || !remove_capture(key_of(CU_STREAM_PER_THREAD, 1)))
        return;
    atomic_fetch_sub(&process->captures, 1);
    lane_capture_ended(process->domain);
}

void capture_after_begin(CUstream stream, int per_thread, CUcontext context, CUresult result)
{
    uint64_t key = key_of(stream, per_thread);
    int began = result == CUDA_SUCCESS;
    if (began && remove_capture(key)) /* a stream that begins anew has ended what it had, unseen */
        captures_less_one();
    if (!began)
        captures_less_one();
    else if (!add_capture(key, context))
        atomic_fetch_add(&process->unnoted_captures, 1); /* counted until some capture ends */
    else if (key != (uint64_t)(uintptr_t)stream)
        thread_watch();
}

static CUresult is_capturing(CUstream stream, int per_thread, CUstreamCaptureStatus *status)
{
    return per_thread ? real()->cuStreamIsCapturing_ptsz(stream, status)
                      : real()->cuStreamIsCapturing(stream, status);
}

static int is_noted(uint64_t key)
{
    pthread_mutex_lock(&process->capture_lock);
    int noted = map_find(&process->capturing, key) != NULL;
    pthread_mutex_unlock(&process->capture_lock);
    return noted;
}

/* Where the driver does not say, a stream whose capture we saw begin is capturing. */
int capture_is_on(CUstream stream, int per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (is_capturing(stream, per_thread, &status) != CUDA_SUCCESS)
        return is_noted(key_of(stream, per_thread));
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUresult capture_stream_error(CUstream stream, int per_thread)
{
    CUstreamCaptureStatus status;
    CUresult result = is_capturing(stream, per_thread, &status);
    return result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_INVALID_HANDLE ||
                   result == CUDA_ERROR_CONTEXT_IS_DESTROYED
               ? result
               : CUDA_SUCCESS;
}

/* One for which there was no memory. */
static int end_unnoted(void)
{
    int count = atomic_load(&process->unnoted_captures);
    while (count > 0 &&
           !atomic_compare_exchange_weak(&process->unnoted_captures, &count, count - 1))
        ;
    return count > 0;
}

/* What the driver's call will end is noted by its number before it, and after it, if it did, taken
 * off the list: what came on the list meanwhile is another's, which went on with the stream, or
 * whose stream or context was given the same handle; and other calls may be refused to end the same
 * one. */
uint64_t capture_before_end(CUstream stream, int per_thread)
{
    if (!capture_active())
        return 0;
    pthread_mutex_lock(&process->capture_lock);
    struct map_node *node = map_find(&process->capturing, key_of(stream, per_thread));
    uint64_t number = node ? ((struct capture *)node)->number : 0;
    pthread_mutex_unlock(&process->capture_lock);
    return number;
}

static int remove_ended(uint64_t key, uint64_t number)
{
    pthread_mutex_lock(&process->capture_lock);
    struct map_node *node = map_find(&process->capturing, key);
    int ended = node && ((struct capture *)node)->number == number;
    if (ended)
        slab_give(&process->capture_nodes, map_remove(&process->capturing, key));
    pthread_mutex_unlock(&process->capture_lock);
    return ended;
}

void capture_after_end(CUstream stream, int per_thread, uint64_t number)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    uint64_t key = key_of(stream, per_thread);
    if (!capture_active())
        return;
    is_capturing(stream, per_thread, &status);
    if (status != CU_STREAM_CAPTURE_STATUS_NONE)
        return; /* called on the wrong stream or thread: it goes on */
    if (remove_ended(key, number) || (!number && !is_noted(key) && end_unnoted()))
        captures_less_one();
}

void capture_after_destroy(CUstream stream, uint64_t number, CUresult result)
{
    if (number && result == CUDA_SUCCESS && remove_ended(key_of(stream, 0), number))
        captures_less_one();
}

uint64_t capture_last(void)
{
    pthread_mutex_lock(&process->capture_lock);
    uint64_t last = process->captures_begun;
    pthread_mutex_unlock(&process->capture_lock);
    return last;
}

struct ended {
    CUcontext context;
    uint64_t last;
};

static int ends_in(const struct map_node *node, const void *ended)
{
    const struct capture *capture = (const struct capture *)node;
    const struct ended *end = ended;
    return capture->context == end->context && capture->number <= end->last;
}

void capture_context_ended(CUcontext context, uint64_t last)
{
    const struct ended end = {context, last};
    unsigned ended = 0;
    pthread_mutex_lock(&process->capture_lock);
    for (struct map_node *node; (node = map_any(&process->capturing, ends_in, &end)); ended++) {
        map_remove(&process->capturing, node->key);
        slab_give(&process->capture_nodes, node);
    }
    pthread_mutex_unlock(&process->capture_lock);
    while (ended--)
        captures_less_one();
}
