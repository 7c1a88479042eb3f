/* A block is handed out when the device has finished the work that used it: with this option
 * free_mode is `fence` (config.c). So a fill on a stream of our own races with nothing before it,
 * and the wait for it orders it before all that comes. Nothing is filled while a stream is captured
 * or after the device was once too busy. */
#include "interpose/memory/fill.h"

#include <string.h>

#include "interpose/context/capture.h"
#include "interpose/context/device_ops.h"
#include "interpose/process/process.h"
#include "interpose/stream/submit.h"

#define FILL_WAIT_NS UINT64_C(2000000000)

static struct WIPED filling {
    _Atomic uint64_t requests;
    _Atomic int gave_up;
} filling;
static const struct wiped wiped WIPED_ENTRY = {&filling, sizeof filling};

/* Counts a request, and gives its word. Returns 0 if it is not to be filled. */
static int begin(uint32_t *word)
{
    const struct fill_rule *rule = &process.config.options.fill;
    if (!process.watched || rule->kind == FILL_NONE || !process_serving() || process_inside)
        return 0;
    process_count(COVERAGE_fills);
    *word = fill_rule_word(rule, atomic_fetch_add(&filling.requests, 1) + 1);
    if (atomic_load(&filling.gave_up))
        return 0;
    if (!capture_active())
        return 1;
    process_warn("fill: memory that is allocated while a stream is captured is not filled");
    return 0;
}

int fill_block(struct context *context, uint64_t address, uint64_t bytes)
{
    uint32_t word;
    if (!begin(&word))
        return 1;
    process_inside++;
    int code = driver_fill(context, address, bytes, word, FILL_WAIT_NS);
    process_inside--;
    if (code == 0)
        return 1;
    if (!atomic_exchange(&filling.gave_up, 1))
        process_warn("fill: the device was busy for 2 s, or refused (code %d): from now on nothing "
                     "is filled",
                     code);
    return 0; /* a part of it may be under way */
}

void fill_in_stream(CUdeviceptr pointer, uint64_t bytes, CUstream stream, int per_thread)
{
    const struct real_driver *driver = real();
    uint32_t word;
    if (!begin(&word))
        return;
    submit_begin(SUBMISSION_sets, stream, per_thread);
    CUresult result = CUDA_SUCCESS;
    if (bytes / 4)
        result = per_thread ? driver->cuMemsetD32Async_ptsz(pointer, word, bytes / 4, stream)
                            : driver->cuMemsetD32Async(pointer, word, bytes / 4, stream);
    if (bytes % 4)
        result = per_thread ? driver->cuMemsetD8Async_ptsz(pointer + bytes / 4 * 4, (uint8_t)word,
                                                           bytes % 4, stream)
                            : driver->cuMemsetD8Async(pointer + bytes / 4 * 4, (uint8_t)word,
                                                      bytes % 4, stream);
    submit_end(result, stream, per_thread, 0);
}

void fill_host(void *pointer, uint64_t bytes)
{
    uint32_t word;
    if (!begin(&word))
        return;
    for (uint64_t i = 0; i < bytes / 4; i++)
        memcpy((char *)pointer + 4 * i, &word, 4);
    memset((char *)pointer + bytes / 4 * 4, (int)(word & 0xff), bytes % 4);
}
