#include "check.h"

#include "engine.h"
#include "memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void describe(const char *which, const struct sim_item *item)
{
    static const char *const kinds[] = {"legacy", "blocking", "non-blocking", "context marks"};
    const struct sim_work *work = &item->work;
    dprintf(STDERR_FILENO, "cachalot-sim:   %s: %s %s, submitted as #%" PRIu64 " on %s stream %p",
            which, work_kind_name(work), work->call, item->order, kinds[item->queue->kind],
            item->queue->stream);
    const struct sim_range *ranges = work_ranges(work);
    for (size_t i = 0; i < work->range_count; i++) {
        dprintf(STDERR_FILENO, ", %s 0x%" PRIxPTR "+%zu", ranges[i].writes ? "writes" : "reads",
                ranges[i].start, ranges[i].bytes);
        if (ranges[i].rows > 1)
            dprintf(STDERR_FILENO, " (%zu rows, pitch %zu)", ranges[i].rows, ranges[i].pitch);
    }
    dprintf(STDERR_FILENO, "\n");
}

static _Noreturn void report(const char *what, const struct sim_item *item,
                             const struct sim_item *other)
{
    dprintf(STDERR_FILENO, "cachalot-sim: %s\n", what);
    if (item)
        describe("this", item);
    if (other)
        describe("unfinished", other);
    abort();
}

/* Values are there to be waited for and written from anywhere: only a write that meets a copy or a
 * set is nobody's signal. */
static int is_signal(const struct sim_work *work, const struct sim_work *other)
{
    return work->kind == WORK_VALUE &&
           (!work->value_writes || (other->kind != WORK_COPY && other->kind != WORK_SET));
}

static int items_meet(const struct sim_item *item, const struct sim_item *other)
{
    const struct sim_range *mine = work_ranges(&item->work), *theirs = work_ranges(&other->work);
    if (is_signal(&item->work, &other->work) || is_signal(&other->work, &item->work))
        return 0;
    for (size_t i = 0; i < item->work.range_count; i++)
        for (size_t j = 0; j < other->work.range_count; j++)
            if ((mine[i].writes || theirs[j].writes) && range_meets(&mine[i], &theirs[j]))
                return 1;
    return 0;
}

static void check_mapped(const struct sim_item *item)
{
    if (item->work.kind == WORK_ALLOC)
        return;
    const struct sim_range *ranges = work_ranges(&item->work);
    for (size_t i = 0; i < item->work.range_count; i++) {
        size_t bytes = (ranges[i].rows - 1) * ranges[i].pitch + ranges[i].bytes;
        if (!memory_is_mapped(ranges[i].start, bytes, item->work.kind == WORK_FREE)) {
            dprintf(STDERR_FILENO, "cachalot-sim: memory that is not mapped: 0x%" PRIxPTR "+%zu\n",
                    ranges[i].start, bytes);
            report("work touches memory that is not mapped", item, NULL);
        }
    }
}

void check_submission(const struct sim_item *item)
{
    if (item->work.range_count == 0)
        return;
    check_mapped(item);
    const struct sim_clock *clock = &item->queue->clock;
    for (struct sim_queue *queue = engine_active(); queue; queue = queue->next) {
        if (queue == item->queue)
            continue;
        uint64_t before = queue->slot < clock->count ? clock->at[queue->slot] : 0;
        const struct sim_item *other = queue->tail;
        for (; other && other->number > before; other = other->previous)
            if (items_meet(item, other))
                report("unordered work touches the same bytes", item, other);
    }
}

const struct sim_item *check_busy(const struct sim_range *range, const struct sim_memory *memory)
{
    for (struct sim_queue *queue = engine_active(); queue; queue = queue->next)
        for (const struct sim_item *item = queue->head; item; item = item->next) {
            if (memory && item->work.memory == memory)
                continue;
            const struct sim_range *ranges = work_ranges(&item->work);
            for (size_t i = 0; i < item->work.range_count; i++)
                if (range_meets(range, &ranges[i]))
                    return item;
        }
    return NULL;
}

void check_release(const struct sim_memory *memory)
{
    struct sim_range gone = {memory->start, memory->bytes, 0, 1, 1};
    const struct sim_item *item = check_busy(&gone, memory);
    if (!item)
        return;
    dprintf(STDERR_FILENO, "cachalot-sim: free of 0x%" PRIxPTR "+%zu\n", memory->start,
            memory->bytes);
    report("memory is freed under unfinished work", NULL, item);
}
