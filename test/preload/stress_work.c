/* The stress's work: every way to use a block, in order. */
#include <stdatomic.h>

#include "stress.h"

CUresult cuMemsetD8Async_ptsz(CUdeviceptr pointer, unsigned char value, size_t bytes,
                              CUstream stream);

/* The stream that all threads mostly use, and how often they use another: 1 in `rarely`. */
static atomic_uint lane, rarely = 1, longest = 20000; /* ns, of most pieces of work */
static atomic_int captures = 1; /* are some made? Without them lanes come back more often */

void next_phase(struct worker *w)
{
    atomic_store(&lane, dice(w, STREAMS));
    atomic_store(&captures, dice(w, w->alone ? 2 : 3) == 0);
    atomic_store(&longest, 2000u << dice(w, 8));
    atomic_store(&rarely, dice(w, 8) ? 1u << dice(w, 11) : 1);
}

int may_capture(void)
{
    return atomic_load(&captures);
}

static int is_legacy(unsigned stream)
{
    return stream == LEGACY || stream == LEGACY_TOO;
}

unsigned pick(struct worker *w)
{
    unsigned stream = dice(w, atomic_load(&rarely)) ? atomic_load(&lane) : dice(w, STREAMS);
    while (w->capturing & 1u << stream)
        stream = dice(w, STREAMS);
    return stream;
}

/* Streams of two numbers that need no event to be in order, or are the same. */
static int is_ordered(unsigned earlier, unsigned later)
{
    return earlier == later || (is_legacy(earlier) && (is_legacy(later) || is_blocking(later))) ||
           (is_blocking(earlier) && is_legacy(later));
}

static void record(struct worker *w, struct block *block)
{
    OK(cuEventCreate(&block->event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(block->event, w->at->stream[block->home]));
}

static void drop_event(struct block *block)
{
    if (block->event)
        OK(cuEventDestroy(block->event));
    block->event = NULL;
}

/* What `stream` gets next is behind all work on the block; it is work on the block. */
void order(struct worker *w, struct block *block, unsigned stream)
{
    if (block->touched && !block->event && !is_ordered(block->home, stream))
        record(w, block);
    if (block->event)
        OK(cuStreamWaitEvent(w->at->stream[stream], block->event, 0));
    drop_event(block);
    block->touched = 1;
    block->home = stream;
}

void leave_stream(struct worker *w, unsigned stream)
{
    for (int i = 0; i < HELD + GRAPHS; i++) {
        struct block *block = i < HELD ? &w->at->held[i] : &w->at->graph[i - HELD].block;
        if (block->address && block->touched && !block->event && block->home == stream)
            record(w, block);
    }
}

void forget_order(struct worker *w)
{
    for (int i = 0; i < HELD + GRAPHS; i++) {
        struct block *block = i < HELD ? &w->at->held[i] : &w->at->graph[i - HELD].block;
        if (!block->address)
            continue;
        drop_event(block);
        block->touched = 0;
    }
}

static uint64_t some_time(struct worker *w)
{
    return 500 + dice(w, dice(w, 32) ? atomic_load(&longest) : 400000);
}

static void launch_with(struct worker *w, struct block *block, unsigned stream, int programmatic)
{
    struct cachalot_sim_range range = {block->address, block->bytes, 1};
    struct cachalot_sim_kernel kernel = {.ns = some_time(w), .ranges = &range, .range_count = 1};
    void *parameters[] = {&kernel};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = programmatic;
    CUlaunchConfig config = {.gridDimX = 1,
                             .hStream = w->at->stream[stream],
                             .attrs = &attribute,
                             .numAttrs = dice(w, 2) || programmatic ? 1 : 0};
    OK(cuLaunchKernelEx(&config, cachalot_sim_function(), parameters, NULL));
}

static size_t some_bytes(const struct block *block)
{
    return block->bytes < 4096 ? block->bytes : 4096;
}

static void set(struct worker *w, struct block *block, unsigned stream)
{
    size_t bytes = some_bytes(block);
    if (stream == PER_THREAD && dice(w, 2))
        OK(cuMemsetD8Async_ptsz(block->address, 7, bytes, NULL));
    else
        OK(cuMemsetD8Async(block->address, 7, bytes, w->at->stream[stream]));
}

static void copy(struct worker *w, struct block *block, unsigned stream)
{
    struct block *from = &w->at->held[dice(w, HELD)];
    size_t bytes = some_bytes(block);
    if (!from->address || from == block) {
        OK(cuMemcpyHtoDAsync(block->address, w->at->seen + 64, bytes, w->at->stream[stream]));
        return;
    }
    if (some_bytes(from) < bytes)
        bytes = some_bytes(from);
    order(w, from, stream);
    if (is_legacy(stream) && dice(w, 2))
        OK(cuMemcpyDtoD(block->address, from->address, bytes));
    else
        OK(cuMemcpyDtoDAsync(block->address, from->address, bytes, w->at->stream[stream]));
}

/* Natively all is done when cuMemFree returns: the host sees what was copied before. */
static void show(struct worker *w, struct block *block, unsigned stream)
{
    unsigned char value = (unsigned char)dice(w, 256);
    size_t bytes = block->bytes < 32 ? block->bytes : 32;
    struct block *other = &w->at->held[dice(w, HELD)];
    OK(cuMemsetD8Async(block->address, value, bytes, w->at->stream[stream]));
    if (!other->address || other == block)
        return;
    OK(cuMemcpyDtoHAsync(w->at->seen, block->address, bytes, w->at->stream[stream]));
    OK(cuMemFree(other->address));
    drop_event(other);
    *other = (struct block){0};
    CHECK(w->at->seen[0] == value && w->at->seen[bytes - 1] == value);
}

/* A copy or kernel on a stream of the other context, in the middle of its own stream's work. */
void write_of_the_other_side(struct worker *w, struct block *block)
{
    struct side *own = w->at, *other = &w->side[own == w->side];
    unsigned stream = pick(w), there = dice(w, STREAMS);
    order(w, block, stream);
    record(w, block);
    OK(cuCtxSetCurrent(other->context));
    w->at = other;
    OK(cuStreamWaitEvent(other->stream[there], block->event, 0));
    write_all(other->stream[there], some_time(w), block->address, block->bytes);
    drop_event(block);
    block->home = there;
    record(w, block);
    OK(cuCtxSetCurrent(own->context));
    w->at = own;
    OK(cuStreamWaitEvent(own->stream[stream], block->event, 0));
    drop_event(block);
    block->home = stream;
}

void touch(struct worker *w, struct block *block)
{
    unsigned stream = pick(w), way = dice(w, 20);
    if (way < 5 && !block->touched && !is_legacy(stream)) {
        launch_with(w, block, stream, 1);
        block->touched = 1;
        block->home = stream;
        return;
    }
    order(w, block, stream);
    if (way < 2)
        set(w, block, stream);
    else if (way < 4)
        launch_with(w, block, stream, 0);
    else if (way < 6)
        copy(w, block, stream);
    else if (way == 6 && is_legacy(stream))
        OK(cuMemsetD8(block->address, 1, some_bytes(block)));
    else if (way == 7 && dice(w, 2))
        show(w, block, stream);
    else
        write_all(w->at->stream[stream], some_time(w), block->address, block->bytes);
}

/* Calls that are submissions by their name, and put nothing on the stream. */
void do_nothing(struct worker *w)
{
    CUstream stream = w->at->stream[pick(w)];
    struct block *block = &w->at->held[dice(w, HELD)];
    if (dice(w, 2))
        CHECK(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    else if (block->address)
        OK(cuMemsetD8Async(block->address, 0, 0, stream));
}

/* However the program may give a block back. */
void release(struct worker *w, struct block *block)
{
    if (dice(w, 40) == 0) {
        unsigned stream = pick(w);
        order(w, block, stream);
        OK(cuMemFreeAsync(block->address, w->at->stream[stream]));
    } else {
        OK(cuMemFree(block->address));
    }
    drop_event(block);
    *block = (struct block){0};
}
