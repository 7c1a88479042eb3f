/* Calls at random, right ones and wrong ones; each says what it got. Arguments: seed, calls. */
#include <stdint.h>

#include "driver_case.h"

enum { HELD = 32, GONE = 16, SIDES = 3 };

static struct held {
    CUdeviceptr address;
    size_t bytes;
    int side;
} held[HELD];
static CUdeviceptr gone[GONE]; /* freed */
static CUcontext context[SIDES];
static CUstream stream[SIDES]; /* one of each */
static int side;               /* the current one */
static uint64_t state;

static unsigned below(unsigned n)
{
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (unsigned)(state >> 33) % n;
}

static size_t any_size(void)
{
    static const size_t most[] = {600, 4096, 20 * KIB, MIB, 9 * MIB, 40 * MIB};
    size_t size = most[below(sizeof most / sizeof *most)];
    return below(4) ? 1 + below((unsigned)size) : size - 1 + below(3);
}

static CUstream any_stream(void)
{
    CUstream streams[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, stream[side]};
    return streams[below(4)];
}

static void enter(int where)
{
    side = where;
    OK(cuCtxSetCurrent(context[side]));
}

static void create(int where)
{
    context[where] = new_context(0);
    OK(cuCtxPopCurrent(NULL));
    enter(where);
    OK(cuStreamCreate(&stream[where], below(2)));
}

static void take(struct held *h)
{
    size_t pitch = 0;
    if (h->address)
        return;
    h->side = side;
    h->bytes = any_size();
    if (below(4))
        SAY(cuMemAlloc(&h->address, h->bytes));
    else
        SAY(cuMemAllocPitch(&h->address, &pitch, 1 + h->bytes % 5000, 1 + h->bytes / 5000, 4));
    if (pitch)
        h->bytes = (1 + h->bytes / 5000) * pitch;
    SAY(pitch);
    SAY(h->address % 512);
}

static void work(const struct held *h)
{
    if (h->address && h->side == side)
        write_all(any_stream(), below(3000), h->address, h->bytes);
}

static void give(struct held *h)
{
    if (!h->address)
        return;
    if (below(3) || h->side != side) {
        SAY(cuMemFree(h->address));
    } else {
        OK(cuCtxSynchronize());
        SAY(cuMemFreeAsync(h->address, any_stream()));
        OK(cuCtxSynchronize());
    }
    gone[below(GONE)] = h->address;
    h->address = 0;
}

static void free_wrongly(CUdeviceptr address)
{
    if (below(2))
        SAY(cuMemFree(address));
    else
        SAY(cuMemFreeAsync(address, any_stream()));
}

static void free_inside(const struct held *h)
{
    static const unsigned offsets[] = {1, 2, 3, 4, 8, 255, 256, 512, 4096};
    size_t offset = offsets[below(sizeof offsets / sizeof *offsets)];
    if (h->address && offset < h->bytes)
        free_wrongly(h->address + offset);
}

/* A block that has just been another one. */
static void change_hands(struct held *h)
{
    if (h->address)
        return;
    h->bytes = any_size();
    h->side = side;
    h->address = make(h->bytes);
    OK(cuMemFree(h->address));
    free_wrongly(h->address);
    h->address = make(h->bytes);
    for (int i = 0; i < 3; i++)
        free_inside(h);
}

/* Natively an address does not come again so soon as here. */
static void free_again(void)
{
    CUdeviceptr address = gone[below(GONE)];
    for (int i = 0; i < HELD; i++)
        if (address - held[i].address < held[i].bytes && held[i].address)
            address = 0;
    free_wrongly(address ? address : 0x1000);
}

static void ask_too_much(void)
{
    CUdeviceptr pointer = 0x77;
    SAY(cuMemAlloc(&pointer, SIZE_MAX - below(3 << 20)));
    SAY(cuMemAlloc(&pointer, 0));
    SAY(cuMemAlloc(NULL, any_size()));
    SAY(pointer);
}

static void capture(const struct held *h)
{
    CUgraph graph = NULL;
    CUdeviceptr inside = 0;
    OK(cuCtxSynchronize());
    SAY(cuStreamBeginCapture(stream[side], CU_STREAM_CAPTURE_MODE_RELAXED));
    if (h->address && h->side == side) {
        write_all(stream[side], 1000, h->address, h->bytes);
        SAY(cuMemFreeAsync(h->address, stream[side]));
    }
    SAY(cuMemAlloc(&inside, any_size()));
    SAY(cuMemFree(inside));
    SAY(cuStreamEndCapture(stream[side], &graph));
    if (graph)
        OK(cuGraphDestroy(graph));
}

static void renew_side(int where)
{
    if (!where)
        return; /* one stays */
    if (side == where)
        enter(0);
    OK(cuCtxDestroy(context[where]));
    for (int i = 0; i < HELD; i++)
        if (held[i].address && held[i].side == where) {
            SAY(cuMemFree(held[i].address));
            held[i].address = 0;
        }
    create(where);
}

static void one(struct held *h)
{
    unsigned what = below(40);
    if (what < 12)
        take(h);
    else if (what < 16) {
        work(h);
        OK(cuCtxSynchronize());
    } else if (what < 18) {
        work(h);
        give(h); /* under work, as natively */
    } else if (what < 26)
        give(h);
    else if (what < 31)
        free_inside(h);
    else if (what < 34)
        free_again();
    else if (what < 35)
        ask_too_much();
    else if (what < 36)
        change_hands(h);
    else if (what < 37)
        capture(h);
    else if (what < 39)
        enter((int)below(SIDES));
    else
        renew_side((int)below(SIDES));
}

int main(int count, char **argument)
{
    CHECK(count == 3);
    state = strtoul(argument[1], NULL, 10);
    begin();
    for (int i = 0; i < SIDES; i++)
        create(i);
    for (long i = 0, calls = atol(argument[2]); i < calls; i++)
        one(&held[below(HELD)]);
    return 0;
}
