#include "check.h"

#include "context.h"
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

void check_failed(const char *what)
{
    report(what, NULL, NULL);
}

/* Values are there to be waited for and written from anywhere: only a write that meets a copy or a
 * set is nobody's signal. */
static int is_signal(const struct sim_work *work, const struct sim_work *other)
{
    return work->kind == WORK_VALUE &&
           (!work->value_writes || (other->kind != WORK_COPY && other->kind != WORK_SET));
}

/* Appends what the range touches, each piece as it lies in its handle, or else as it is. */
static void add_physical(struct sim_item *item, struct sim_range range)
{
    while (range.bytes) {
        struct sim_range piece = range;
        int mapped = range.rows == 1 && physical_of(&piece);
        struct sim_range *all = realloc(item->physical, (item->physical_count + 1) * sizeof(*all));
        if (!all)
            abort();
        item->physical = all;
        item->physical[item->physical_count++] = piece;
        if (!mapped)
            return;
        range.start += piece.bytes;
        range.bytes -= piece.bytes;
    }
}

static int is_mapped_memory(const struct sim_range *range)
{
    struct sim_range piece = *range;
    return physical_of(&piece);
}

/* Rows in mapped memory become ranges of their own. */
static void find_physical(struct sim_item *item)
{
    const struct sim_range *ranges = work_ranges(&item->work);
    int mapped = 0;
    for (size_t i = 0; i < item->work.range_count; i++)
        mapped |= is_mapped_memory(&ranges[i]);
    for (size_t i = 0; mapped && i < item->work.range_count; i++) {
        struct sim_range row = ranges[i];
        if (!is_mapped_memory(&row)) {
            add_physical(item, row);
            continue;
        }
        row.rows = 1;
        for (size_t n = 0; n < ranges[i].rows; n++, row.start += ranges[i].pitch)
            add_physical(item, row);
    }
}

static const struct sim_range *item_ranges(const struct sim_item *item, size_t *count)
{
    *count = item->physical ? item->physical_count : item->work.range_count;
    return item->physical ? item->physical : work_ranges(&item->work);
}

static int items_meet(const struct sim_item *item, const struct sim_item *other)
{
    size_t mine_count, their_count;
    const struct sim_range *mine = item_ranges(item, &mine_count),
                           *theirs = item_ranges(other, &their_count);
    if (is_signal(&item->work, &other->work) || is_signal(&other->work, &item->work))
        return 0;
    for (size_t i = 0; i < mine_count; i++)
        for (size_t j = 0; j < their_count; j++)
            if ((mine[i].writes || theirs[j].writes) && range_meets(&mine[i], &theirs[j]))
                return 1;
    return 0;
}

/* May the device that does the work touch all mapped memory in there? */
static int is_allowed(const struct sim_item *item, uintptr_t start, size_t bytes)
{
    const struct sim_context *context = item->queue->context;
    for (uintptr_t at = start; context && at < start + bytes;) {
        const struct sim_memory *memory = memory_find(at, 1);
        if (!memory)
            return 1;
        if (memory->kind == MEMORY_MAPPED && !(memory->accessible >> context->device & 1))
            return 0;
        at = memory->start + memory->bytes;
    }
    return 1;
}

static void check_mapped(const struct sim_item *item)
{
    if (item->work.kind == WORK_ALLOC)
        return;
    const struct sim_range *ranges = work_ranges(&item->work);
    for (size_t i = 0; i < item->work.range_count; i++) {
        size_t bytes = (ranges[i].rows - 1) * ranges[i].pitch + ranges[i].bytes;
        if (!memory_is_mapped(ranges[i].start, bytes, item->work.kind == WORK_FREE) ||
            !is_allowed(item, ranges[i].start, bytes)) {
            dprintf(STDERR_FILENO, "cachalot-sim: memory that is not mapped: 0x%" PRIxPTR "+%zu\n",
                    ranges[i].start, bytes);
            report("work touches memory that is not mapped", item, NULL);
        }
    }
}

void check_submission(struct sim_item *item)
{
    if (item->work.range_count == 0)
        return;
    check_mapped(item);
    find_physical(item);
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

int check_bytes_busy(uintptr_t start, size_t bytes)
{
    struct sim_item query = {.work.kind = WORK_TOUCH};
    work_add_range(&query.work, (struct sim_range){start, bytes, 0, 1, 1});
    find_physical(&query);
    int busy = 0;
    for (struct sim_queue *queue = engine_active(); queue; queue = queue->next)
        for (const struct sim_item *item = queue->head; item; item = item->next)
            busy |= items_meet(&query, item);
    free(query.physical);
    return busy;
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
