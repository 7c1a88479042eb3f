/* The bytes are cut into windows. Each thread takes the next window, and copies it through pinned
 * memory of its own: one copy engine then works at full speed, while several processors touch the
 * pages of the store. Without pinned memory the driver copies to the store itself, more slowly. */
#include "interpose/sleep/move.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "allocator/base/units.h"
#include "interpose/context/context.h"
#include "interpose/process/gate.h"
#include "interpose/process/own_thread.h"
#include "interpose/resolve/real_driver.h"

#define WINDOW (16 * MIB)
#define MOST_THREADS 8

struct move {
    const struct live *live;
    char *store;
    enum move_way way;
    _Atomic uint64_t next; /* the first byte that no thread has taken */
    _Atomic int code;      /* the first error */
};

/* A thread's share of the work: the context that it is in, with a stream of its own. */
struct mover {
    struct move *move;
    const struct context *context; /* NULL: none yet */
    CUstream stream;
    CUstreamCaptureMode mode;
    char *pinned; /* NULL: there is none */
};

static void leave_context(struct mover *mover)
{
    if (!mover->context)
        return;
    real()->cuStreamDestroy_v2(mover->stream);
    real()->cuThreadExchangeStreamCaptureMode(&mover->mode);
    context_pop();
    mover->context = NULL;
}

static CUresult enter_context(struct mover *mover, const struct context *context)
{
    if (mover->context == context)
        return CUDA_SUCCESS;
    leave_context(mover);
    CUresult result = context ? context_push(context->handle) : CUDA_ERROR_INVALID_CONTEXT;
    if (result != CUDA_SUCCESS)
        return result;
    mover->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    real()->cuThreadExchangeStreamCaptureMode(&mover->mode);
    result = real()->cuStreamCreate(&mover->stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS) {
        real()->cuThreadExchangeStreamCaptureMode(&mover->mode);
        context_pop();
        return result;
    }
    mover->context = context;
    if (!mover->pinned && real()->cuMemHostAlloc((void **)&mover->pinned, WINDOW,
                                                 CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS)
        mover->pinned = NULL;
    return CUDA_SUCCESS;
}

/* The pinned memory is used until the last copy of a window is done; so a window that lies in several
 * contexts is copied context by context. */
static CUresult copy_window(struct mover *mover, uint64_t begin, uint64_t bytes)
{
    const struct move *move = mover->move;
    const struct live *live = move->live;
    CUresult result = CUDA_SUCCESS;
    for (size_t i = live_find(live, begin); !result && i < live->count; i++) {
        const struct run *run = &live->run[i];
        if (run->at >= begin + bytes)
            break;
        uint64_t from = run->at > begin ? run->at : begin, end = run->at + run->bytes;
        end = end < begin + bytes ? end : begin + bytes;
        if (mover->context && mover->context != run->context &&
            (result = real()->cuStreamSynchronize(mover->stream)) != CUDA_SUCCESS)
            break;
        if ((result = enter_context(mover, run->context)) != CUDA_SUCCESS)
            break;
        char *host = mover->pinned ? mover->pinned + (from - begin) : move->store + from;
        CUdeviceptr device = run->address + (from - run->at);
        if (mover->pinned && move->way == MOVE_IN)
            memcpy(host, move->store + from, end - from);
        result = move->way == MOVE_OUT
                     ? real()->cuMemcpyDtoHAsync_v2(host, device, end - from, mover->stream)
                     : real()->cuMemcpyHtoDAsync_v2(device, host, end - from, mover->stream);
    }
    if (mover->context) {
        CUresult done = real()->cuStreamSynchronize(mover->stream);
        result = result ? result : done;
    }
    if (!result && mover->pinned && move->way == MOVE_OUT)
        memcpy(move->store + begin, mover->pinned, bytes);
    return result;
}

static void work(struct move *move)
{
    struct mover mover = {.move = move};
    uint64_t begin, all = move->live->bytes;
    while (!atomic_load(&move->code) && (begin = atomic_fetch_add(&move->next, WINDOW)) < all) {
        uint64_t bytes = all - begin < WINDOW ? all - begin : WINDOW;
        int none = 0, code = (int)copy_window(&mover, begin, bytes);
        if (code)
            atomic_compare_exchange_strong(&move->code, &none, code);
    }
    if (mover.pinned)
        real()->cuMemFreeHost(mover.pinned);
    leave_context(&mover);
}

static void *serve(void *move)
{
    own_thread_begins("cachalot-move");
    gate_own(1);
    work(move);
    gate_own(0);
    own_thread_ends();
    return NULL;
}

static unsigned threads_for(uint64_t bytes)
{
    cpu_set_t set;
    uint64_t windows = (bytes + WINDOW - 1) / WINDOW;
    unsigned most = sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
    most = most < MOST_THREADS ? most : MOST_THREADS;
    return windows < most ? (unsigned)windows : most;
}

/* The calling thread does its share; where no other thread can be made, it does all. */
/* NOLINTNEXTLINE(readability-non-const-parameter): copies to the host change the store */
int move_all(const struct live *live, char *store, enum move_way way)
{
    struct move move = {.live = live, .store = store, .way = way};
    pthread_t thread[MOST_THREADS];
    unsigned count = 0, wanted = threads_for(live->bytes);
    while (count + 1 < wanted && own_thread_create(&thread[count], serve, &move) == 0)
        count++;
    work(&move);
    for (unsigned i = 0; i < count; i++)
        pthread_join(thread[i], NULL);
    return move.code;
}
