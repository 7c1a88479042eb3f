#include "work.h"

#include <stdlib.h>
#include <string.h>

const struct sim_range *work_ranges(const struct sim_work *work)
{
    return work->more ? work->more : work->own;
}

void work_add_range(struct sim_work *work, struct sim_range range)
{
    size_t inside = sizeof(work->own) / sizeof(work->own[0]);
    if (range.rows == 0)
        range.rows = 1;
    if (range.bytes == 0)
        return;
    if (work->range_count < inside) {
        work->own[work->range_count++] = range;
        return;
    }
    struct sim_range *more = realloc(work->more, (work->range_count + 1) * sizeof(*more));
    if (!more)
        abort();
    if (!work->more)
        memcpy(more, work->own, sizeof(work->own));
    more[work->range_count++] = range;
    work->more = more;
}

void work_copy(struct sim_work *to, const struct sim_work *from)
{
    *to = *from;
    if (!from->more)
        return;
    to->more = malloc(from->range_count * sizeof(*to->more));
    if (!to->more)
        abort();
    memcpy(to->more, from->more, from->range_count * sizeof(*to->more));
}

void work_dispose(struct sim_work *work)
{
    free(work->more);
    free(work->staged);
    work->more = NULL;
    work->staged = NULL;
}

const char *work_kind_name(const struct sim_work *work)
{
    static const char *const names[] = {"copy", "set",   "kernel", "host function", "mark",
                                        "wait", "value", "touch",  "allocation",    "free"};
    return names[work->kind];
}

static void row_set(char *to, const struct sim_transfer *transfer)
{
    unsigned bytes = transfer->value_bytes;
    if (bytes == 1) {
        memset(to, (int)(transfer->value & 0xff), transfer->width);
        return;
    }
    uint16_t half = (uint16_t)transfer->value;
    const void *value = bytes == 2 ? (const void *)&half : (const void *)&transfer->value;
    for (size_t at = 0; at + bytes <= transfer->width; at += bytes)
        memcpy(to + at, value, bytes);
}

void transfer_carry_out(const struct sim_transfer *transfer)
{
    for (size_t z = 0; z < transfer->depth; z++) {
        for (size_t y = 0; y < transfer->height; y++) {
            char *to = (char *)transfer->to + z * transfer->to_slice + y * transfer->to_pitch;
            if (transfer->value_bytes) {
                row_set(to, transfer);
                continue;
            }
            const char *from =
                (const char *)transfer->from + z * transfer->from_slice + y * transfer->from_pitch;
            memmove(to, from, transfer->width);
        }
    }
}

static uintptr_t range_end(const struct sim_range *range)
{
    return range->start + (range->rows - 1) * range->pitch + range->bytes;
}

/* Does [start, end) touch a row of the range? */
static int range_touched(const struct sim_range *range, uintptr_t start, uintptr_t end)
{
    if (end <= range->start || start >= range_end(range))
        return 0;
    if (range->rows == 1 || range->pitch <= range->bytes || start < range->start)
        return 1;
    uintptr_t offset = (start - range->start) % range->pitch;
    return offset < range->bytes || offset + (end - start) > range->pitch;
}

int range_meets(const struct sim_range *a, const struct sim_range *b)
{
    if (a->start >= range_end(b) || b->start >= range_end(a))
        return 0;
    for (size_t row = 0; row < a->rows; row++) {
        uintptr_t start = a->start + row * a->pitch;
        if (range_touched(b, start, start + a->bytes))
            return 1;
    }
    return 0;
}

int work_value_met(const struct sim_work *work)
{
    uint64_t now = work->value_bytes == 4
                       ? __atomic_load_n((uint32_t *)work->value_address, __ATOMIC_ACQUIRE)
                       : __atomic_load_n((uint64_t *)work->value_address, __ATOMIC_ACQUIRE);
    switch (work->value_flags & 3) {
    case CU_STREAM_WAIT_VALUE_EQ:
        return now == work->value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (now & work->value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
        return (now | work->value) != (work->value_bytes == 4 ? UINT32_MAX : UINT64_MAX);
    default:
        return work->value_bytes == 4 ? (int32_t)(uint32_t)(now - work->value) >= 0
                                      : (int64_t)(now - work->value) >= 0;
    }
}

void work_value_write(const struct sim_work *work)
{
    if (work->value_bytes == 4)
        __atomic_store_n((uint32_t *)work->value_address, (uint32_t)work->value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint64_t *)work->value_address, work->value, __ATOMIC_RELEASE);
}
