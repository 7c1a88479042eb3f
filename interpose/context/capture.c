#include "interpose/context/capture.h"

#include <pthread.h>
#include <sched.h>

#include "allocator/base/map.h"
#include "allocator/base/slab.h"
#include "allocator/reuse/lane.h"
#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"
#include "interpose/process/thread_exit.h"
#include "stats/os/pause.h"

struct capture {
    struct map_node node; /* key: the stream; for a per-thread stream, the thread */
    CUcontext context;    /* the stream's; NULL: the driver does not say */
    uint64_t number;      /* numbers captures in the order of their begin */
};

static struct WIPED captures {
    _Atomic int count;   /* captures under way or about to begin */
    _Atomic int unnoted; /* those of them without an entry below, for want of memory */
    /* Written at each context event: on a cache line of its own. */
    _Alignas(64) _Atomic int recordings;
    pthread_mutex_t lock; /* of the fields below */
    uint64_t begun;
    struct map streams; /* struct capture */
    struct slab nodes;
} captures;
static const struct wiped wiped WIPED_ENTRY = {&captures, sizeof captures};

#define THREAD_KEYS ((uint64_t)1 << 62) /* beyond any address */

/* A thread can capture on its own default stream in one context at a time. */
static uint64_t key_of(CUstream stream, int per_thread)
{
    if (stream == CU_STREAM_PER_THREAD || (per_thread && !stream))
        return THREAD_KEYS | process_thread_id();
    return (uint64_t)(uintptr_t)stream;
}

int capture_active(void)
{
    return atomic_load(&captures.count) != 0;
}

int capture_record_begin(void)
{
    atomic_fetch_add(&captures.recordings, 1);
    if (!capture_active())
        return 1;
    capture_record_end();
    return 0;
}

void capture_record_end(void)
{
    atomic_fetch_sub(&captures.recordings, 1);
}

#define MOST_WAITS 1000 /* of 1 ms */

/* The count goes up first, so no recording of a context event begins; recordings under way are
 * waited for. They are short, except for a free on a driver without context events: that one waits
 * for the device, and the device may wait for the program. After MOST_WAITS the capture begins
 * anyway. */
void capture_before_begin(void)
{
    lane_capture_begins(process.domain); /* records its context event while that is allowed */
    atomic_fetch_add(&captures.count, 1);
    for (int i = 0; atomic_load(&captures.recordings) && i < MOST_WAITS; i++) {
        sched_yield();
        if (i > MOST_WAITS / 2)
            pause_ns(1000000);
    }
}

/* Allows recording before it allows lanes: while recording is forbidden, free relies on there being
 * no lane. */
static void captures_less_one(void)
{
    int last = atomic_fetch_sub(&captures.count, 1) == 1;
    lane_capture_ended(process.domain);
    if (last && process_serving())
        domain_captures_ended(process.domain);
    if (last && process_serving() && process.pinned)
        domain_captures_ended(process.pinned);
}

static int remove_capture(uint64_t key)
{
    pthread_mutex_lock(&captures.lock);
    struct map_node *node = map_remove(&captures.streams, key);
    if (node)
        slab_give(&captures.nodes, node);
    pthread_mutex_unlock(&captures.lock);
    return node != NULL;
}

/* Returns 0 if there is no host memory. */
static int add_capture(uint64_t key, CUcontext context)
{
    pthread_mutex_lock(&captures.lock);
    captures.nodes.item_bytes = sizeof(struct capture);
    struct capture *capture = slab_take(&captures.nodes);
    if (capture) {
        capture->node.key = key;
        capture->context = context;
        capture->number = ++captures.begun;
        if (map_insert(&captures.streams, &capture->node)) {
            slab_give(&captures.nodes, capture);
            capture = NULL;
        }
    }
    pthread_mutex_unlock(&captures.lock);
    return capture != NULL;
}

/* A per-thread stream ends with its thread, and so does a capture on it. An ending thread makes no
 * driver calls: the frees that waited for the capture's end are finished by the next free. */
void capture_thread_ends(void)
{
    if (!process_serving() || !capture_active() || !remove_capture(key_of(CU_STREAM_PER_THREAD, 1)))
        return;
    atomic_fetch_sub(&captures.count, 1);
    lane_capture_ended(process.domain);
}

void capture_after_begin(CUstream stream, int per_thread, CUcontext context, CUresult result)
{
    uint64_t key = key_of(stream, per_thread);
    int began = result == CUDA_SUCCESS;
    /* A stream that begins anew has ended its capture by a call that we do not see. */
    if (began && remove_capture(key))
        captures_less_one();
    if (!began)
        captures_less_one();
    else if (!add_capture(key, context))
        atomic_fetch_add(&captures.unnoted, 1); /* until some capture without an entry ends */
    else if (key != (uint64_t)(uintptr_t)stream)
        thread_exit_watch();
}

static CUresult is_capturing(CUstream stream, int per_thread, CUstreamCaptureStatus *status)
{
    return per_thread ? real()->cuStreamIsCapturing_ptsz(stream, status)
                      : real()->cuStreamIsCapturing(stream, status);
}

static int is_noted(uint64_t key)
{
    pthread_mutex_lock(&captures.lock);
    int noted = map_find(&captures.streams, key) != NULL;
    pthread_mutex_unlock(&captures.lock);
    return noted;
}

/* Where the driver does not say, a stream is capturing if its capture has an entry. */
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

/* Ends one capture without an entry. Returns 0 if there is none. */
static int end_unnoted(void)
{
    int count = atomic_load(&captures.unnoted);
    while (count > 0 && !atomic_compare_exchange_weak(&captures.unnoted, &count, count - 1))
        ;
    return count > 0;
}

/* Before the driver's call the number of the capture that it will end is read; after it, that
 * capture is removed. A capture that came on the list in between is another thread's: it went on
 * with the stream, or its stream or context was given the same handle. A call that was refused
 * removes nothing either. */
uint64_t capture_before_end(CUstream stream, int per_thread)
{
    if (!capture_active())
        return 0;
    pthread_mutex_lock(&captures.lock);
    struct map_node *node = map_find(&captures.streams, key_of(stream, per_thread));
    uint64_t number = node ? ((struct capture *)node)->number : 0;
    pthread_mutex_unlock(&captures.lock);
    return number;
}

static int remove_ended(uint64_t key, uint64_t number)
{
    pthread_mutex_lock(&captures.lock);
    struct map_node *node = map_find(&captures.streams, key);
    int ended = node && ((struct capture *)node)->number == number;
    if (ended)
        slab_give(&captures.nodes, map_remove(&captures.streams, key));
    pthread_mutex_unlock(&captures.lock);
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
        return; /* called on the wrong stream or thread: the capture goes on */
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
    pthread_mutex_lock(&captures.lock);
    uint64_t last = captures.begun;
    pthread_mutex_unlock(&captures.lock);
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
    pthread_mutex_lock(&captures.lock);
    for (struct map_node *node; (node = map_any(&captures.streams, ends_in, &end)); ended++) {
        map_remove(&captures.streams, node->key);
        slab_give(&captures.nodes, node);
    }
    pthread_mutex_unlock(&captures.lock);
    while (ended--)
        captures_less_one();
}
