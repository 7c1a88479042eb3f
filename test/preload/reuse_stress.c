/* Random work on streams of every kind, freed right after it was launched, as natively cudaFree
 * allows. The device ends the process if two owners' work meets. Arguments: seed, threads,
 * operations of each; then 2 for a second context on the device, or 3 for one on a second device
 * (after half of the operations). */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "stress.h"

enum { POSTED = 16, THREADS = 16 };

static CUcontext contexts[SIDES];
static CUstream shared[SIDES][OWN - SHARED];
static unsigned seed, threads, operations, kinds;
static int two_devices;
static struct block posted[SIDES][POSTED];
static pthread_mutex_t post_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_ulong done;

static CUcontext second_context(void)
{
    CUcontext context;
    if (two_devices) {
        OK(cuDevicePrimaryCtxRetain(&context, 1));
        return context;
    }
    context = new_context(0);
    OK(cuCtxPopCurrent(NULL));
    return context;
}

static void create(struct side *side, unsigned stream)
{
    OK(cuStreamCreate(&side->stream[stream],
                      is_blocking(stream) ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
}

static void side_begin(struct side *side, int number)
{
    *side = (struct side){.context = contexts[number]};
    OK(cuCtxSetCurrent(side->context));
    side->stream[LEGACY_TOO] = CU_STREAM_LEGACY;
    side->stream[PER_THREAD] = CU_STREAM_PER_THREAD;
    for (unsigned i = SHARED; i < OWN; i++)
        side->stream[i] = shared[number][i - SHARED];
    for (unsigned i = OWN; i < STREAMS; i++)
        create(side, i);
    OK(cuMemAllocHost((void **)&side->seen, 64 + 4096));
}

/* A block goes to another thread, fresh or used: what was submitted on a stream that the other
 * cannot name is behind an event. */
static void post(struct worker *w, struct block *block)
{
    if (block->home == PER_THREAD || block->home >= OWN)
        leave_stream(w, block->home);
    pthread_mutex_lock(&post_lock);
    struct block *place = &posted[w->at - w->side][dice(w, POSTED)], other = *place;
    *place = *block;
    *block = other;
    pthread_mutex_unlock(&post_lock);
}

/* Others get the handles of what is destroyed here, and this thread theirs. */
static void renew_streams(struct worker *w)
{
    unsigned some = dice(w, 1u << (STREAMS - OWN));
    if (w->capturing)
        return;
    for (unsigned i = OWN; i < STREAMS; i++) {
        if (!(some & 1u << (i - OWN)))
            continue;
        leave_stream(w, i);
        OK(cuStreamDestroy(w->at->stream[i]));
    }
    for (unsigned i = OWN; i < STREAMS; i++)
        if (some & 1u << (i - OWN))
            create(w->at, i);
}

static void use_pool(struct worker *w)
{
    CUstream stream = w->at->stream[pick(w)];
    CUdeviceptr pointer;
    OK(cuMemAllocAsync(&pointer, 4096, stream));
    write_all(stream, 1000, pointer, 4096);
    OK(cuMemFreeAsync(pointer, stream));
}

/* What the peer may touch from here on without asking is done. */
static void export(struct worker *w, struct block *block)
{
    CUipcMemHandle handle;
    unsigned on = 1;
    if (block->touched || dice(w, 100))
        return;
    const char *conf = getenv("CACHALOT_CONF");
    int mapped = conf && strstr(conf, "expandable_segments:True"); /* has no such handles */
    if (!mapped && dice(w, 8))
        OK(cuIpcGetMemHandle(&handle, block->address));
    else
        OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block->address));
    CHECK(!cachalot_sim_is_busy(block->address, block->bytes));
}

/* A block of the context that is not current. */
static void release_of_the_other_side(struct worker *w)
{
    struct block *block = &w->side[w->at == w->side].held[dice(w, HELD)];
    if (!block->address)
        return;
    OK(cuMemFree(block->address));
    if (block->event)
        OK(cuEventDestroy(block->event));
    *block = (struct block){0};
}

static void make_or_release(struct worker *w, struct block *block)
{
    if (block->address) {
        release(w, block);
        return;
    }
    block->bytes = dice(w, 2) ? 4096 : 1 + dice(w, dice(w, 10) ? 64 * KIB : 12 * MIB);
    block->address = make(block->bytes);
    if (dice(w, 16) == 0)
        export(w, block);
    if (dice(w, 16))
        touch(w, block);
    if (dice(w, 4) == 0)
        release(w, block);
}

static void step(struct worker *w)
{
    struct block *block = &w->at->held[dice(w, HELD)];
    unsigned way = dice(w, 100);
    atomic_fetch_add_explicit(&done, 1, memory_order_relaxed);
    if (dice(w, 3) == 0)
        cachalot_sim_advance(dice(w, 30000));
    if (way < 2)
        do_nothing(w);
    else if (way < 4)
        use_graph(w, step);
    else if (way == 4)
        use_pool(w);
    else if (way == 5 && dice(w, 4) == 0)
        synchronize(w);
    else if (way == 6 && dice(w, 4) == 0)
        renew_streams(w);
    else if (way < 10)
        post(w, block);
    else if (way < 40 && block->address && way < 12 && two_devices && w->side[1].context)
        write_of_the_other_side(w, block);
    else if (way >= 12 && way < 20 && w->side[1].context)
        release_of_the_other_side(w);
    else if (way < 40 && block->address)
        touch(w, block);
    else
        make_or_release(w, block);
}

/* Everything but the mailbox goes. */
static void side_end(struct worker *w, struct side *side)
{
    if (!side->context)
        return;
    w->at = side;
    OK(cuCtxSetCurrent(side->context));
    for (int i = 0; i < GRAPHS; i++)
        if (side->graph[i].exec)
            drop_graph(w, &side->graph[i]);
    for (int i = 0; i < HELD; i++) {
        if (side->held[i].address && dice(w, 4) == 0)
            post(w, &side->held[i]);
        if (side->held[i].address)
            release(w, &side->held[i]);
    }
    for (unsigned i = OWN; i < STREAMS; i++)
        OK(cuStreamDestroy(side->stream[i]));
    OK(cuMemFreeHost(side->seen));
    side->context = NULL;
}

/* A context with all that is in it ends under its work, and its handle comes back. */
static void renew_context(struct worker *w)
{
    struct side *side = &w->side[1];
    w->at = w->side;
    if (!side->context)
        return;
    OK(cuCtxSetCurrent(side->context));
    w->at = side;
    forget_order(w);
    OK(cuCtxDestroy(side->context));
    memset(posted[1], 0, sizeof posted[1]);
    contexts[1] = second_context();
    OK(cuCtxSetCurrent(contexts[1]));
    for (unsigned i = 0; i < OWN - SHARED; i++)
        OK(cuStreamCreate(&shared[1][i], (i + SHARED) % 2));
    side_begin(side, 1);
}

static void change_side(struct worker *w)
{
    struct side *other = &w->side[w->at == w->side];
    if (!other->context)
        side_begin(other, other != w->side);
    else
        OK(cuCtxSetCurrent(other->context));
    w->at = other;
}

/* One thread's life. */
struct life {
    unsigned long number, steps;
    int both; /* contexts */
};

static void *live(void *argument)
{
    const struct life *life = argument;
    struct worker w = {.random = seed * 7919u + life->number, .alone = threads == 1};
    unsigned often = 100;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(cuCtxSetCurrent(contexts[0]));
    OK(cuThreadExchangeStreamCaptureMode(&mode)); /* others capture */
    side_begin(&w.side[0], 0);
    w.at = w.side;
    for (unsigned long i = 0; i < life->steps; i++) {
        if (dice(&w, 2000 * threads) == 0)
            next_phase(&w);
        if (dice(&w, 2000) == 0)
            often = 1u << dice(&w, 9);
        if (life->both && dice(&w, often) == 0)
            change_side(&w);
        if (life->both && w.alone && !two_devices && dice(&w, 5000) == 0)
            renew_context(&w);
        step(&w);
    }
    side_end(&w, &w.side[1]);
    side_end(&w, &w.side[0]);
    return NULL;
}

/* Threads live one after the other. */
static void *keep(void *number)
{
    struct worker w = {.random = seed + 31 * (size_t)number};
    pthread_t thread;
    for (unsigned i = 0, spent = 0; spent < operations; i++) {
        struct life life = {.number = (size_t)number + 100 * i,
                            .steps = 1 + dice(&w, 30000),
                            .both = kinds > 1 && spent > operations / 2};
        if (life.steps > operations - spent)
            life.steps = operations - spent;
        spent += (unsigned)life.steps;
        OK(pthread_create(&thread, NULL, live, &life));
        OK(pthread_join(thread, NULL));
    }
    return NULL;
}

static void contexts_begin(void)
{
    contexts[0] = begin();
    if (kinds > 1)
        contexts[1] = second_context();
    for (int side = 0; side < SIDES && contexts[side]; side++) {
        OK(cuCtxSetCurrent(contexts[side]));
        if (two_devices)
            OK(cuCtxEnablePeerAccess(contexts[!side], 0));
        for (unsigned i = 0; i < OWN - SHARED; i++)
            OK(cuStreamCreate(&shared[side][i], (i + SHARED) % 2));
    }
}

/* Requests that no thread's cache serves, so many that one of them asks which fences have passed:
 * after an answer in vain the next eight do not ask. */
static void ask_for_fences(void)
{
    for (int i = 0; i < 9; i++)
        OK(cuMemFree(make(2 * MIB)));
}

int main(int count, char **argument)
{
    pthread_t keeper[THREADS];
    CHECK(count == 4 || count == 5);
    seed = (unsigned)atoi(argument[1]);
    threads = (unsigned)atoi(argument[2]);
    operations = (unsigned)atoi(argument[3]);
    kinds = count == 5 ? (unsigned)atoi(argument[4]) : 1;
    two_devices = kinds == 3;
    CHECK(threads <= THREADS);
    contexts_begin();
    for (size_t i = 0; i < threads; i++)
        OK(pthread_create(&keeper[i], NULL, keep, (void *)i));
    for (size_t i = 0; i < threads; i++)
        OK(pthread_join(keeper[i], NULL));
    for (int side = 0; side < SIDES && contexts[side]; side++) {
        OK(cuCtxSetCurrent(contexts[side]));
        for (int i = 0; i < POSTED; i++)
            if (posted[side][i].address)
                OK(cuMemFree(posted[side][i].address));
        OK(cuCtxSynchronize());
        ask_for_fences();
    }
    SAY(cachalot_sim_unfinished());
    printf("operations: %lu\n", done);
    return 0;
}
