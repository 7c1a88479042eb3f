#include "engine.h"

#include "check.h"
#include "config.h"
#include "memory.h"
#include "stream.h"
#include "sim_time.h"

#include <stdlib.h>

struct slot {
    uint64_t issued, done;
    int used;
};

/* Natively about this many launches may be outstanding before a submission waits. */
#define QUEUE_LIMIT 1024

static struct slot *slots;
static size_t slot_count;
static struct sim_queue *active;
static struct sim_item *spare_items;
static uint64_t cursor, submissions;
static size_t unfinished;

struct sim_queue *engine_active(void)
{
    return active;
}

size_t engine_unfinished(void)
{
    return unfinished;
}

static void *grown(void *memory, size_t bytes)
{
    void *more = realloc(memory, bytes);
    if (!more)
        abort();
    return more;
}

void clock_merge(struct sim_clock *to, const struct sim_clock *from)
{
    if (to->count < from->count) {
        to->at = grown(to->at, from->count * sizeof(*to->at));
        while (to->count < from->count)
            to->at[to->count++] = 0;
    }
    for (size_t i = 0; i < from->count; i++)
        if (to->at[i] < from->at[i])
            to->at[i] = from->at[i];
}

static void clock_reach(struct sim_clock *clock, struct sim_point point)
{
    if (clock->count <= point.slot) {
        clock->at = grown(clock->at, (point.slot + 1) * sizeof(*clock->at));
        while (clock->count <= point.slot)
            clock->at[clock->count++] = 0;
    }
    if (clock->at[point.slot] < point.number)
        clock->at[point.slot] = point.number;
}

struct sim_queue *queue_new(enum sim_queue_kind kind, const void *context, const void *stream)
{
    struct sim_queue *queue = calloc(1, sizeof(*queue));
    if (!queue)
        abort();
    queue->kind = kind;
    queue->context = context;
    queue->stream = stream;
    return queue;
}

/* Only queues that carry work take a slot: 128 idle streams cost nothing. */
static void queue_take_slot(struct sim_queue *queue)
{
    size_t slot = 0;
    while (slot < slot_count && slots[slot].used)
        slot++;
    if (slot == slot_count) {
        slots = grown(slots, ++slot_count * sizeof(*slots));
        slots[slot] = (struct slot){0};
    }
    slots[slot].used = 1;
    queue->slot = slot;
    queue->has_slot = 1;
}

static void queue_free(struct sim_queue *queue)
{
    /* Numbers go on counting, so that a point in the slot's past stays passed. */
    if (queue->has_slot)
        slots[queue->slot].used = 0;
    free(queue->clock.at);
    free(queue);
}

void queue_drop(struct sim_queue *queue)
{
    queue->orphan = 1;
    if (!queue->listed)
        queue_free(queue);
}

static void queue_list(struct sim_queue *queue)
{
    queue->listed = 1;
    queue->previous = NULL;
    queue->next = active;
    if (active)
        active->previous = queue;
    active = queue;
}

static void queue_unlist(struct sim_queue *queue)
{
    queue->listed = 0;
    if (queue->previous)
        queue->previous->next = queue->next;
    else
        active = queue->next;
    if (queue->next)
        queue->next->previous = queue->previous;
    if (queue->orphan)
        queue_free(queue);
}

int engine_passed(struct sim_point point)
{
    return point.number == 0 || slots[point.slot].done >= point.number;
}

static int queue_joins(const struct sim_queue *queue, const struct sim_queue *other)
{
    if (queue == other || queue->context != other->context)
        return 0;
    switch (queue->kind) {
    case QUEUE_LEGACY:
        return other->kind == QUEUE_BLOCKING;
    case QUEUE_BLOCKING:
        return other->kind == QUEUE_LEGACY;
    case QUEUE_MARKS:
        return other->kind != QUEUE_MARKS;
    default:
        return 0;
    }
}

static void item_add_point(struct sim_item *item, struct sim_point point)
{
    if (engine_passed(point))
        return;
    item->after = grown(item->after, (item->after_count + 1) * sizeof(*item->after));
    item->after[item->after_count++] = point;
}

static struct sim_item *item_new(struct sim_queue *queue, struct sim_work *work)
{
    struct sim_item *item = spare_items;
    if (item)
        spare_items = item->next;
    else
        item = grown(NULL, sizeof(*item));
    *item = (struct sim_item){.work = *work, .queue = queue, .order = ++submissions};
    item->number = ++slots[queue->slot].issued;
    return item;
}

static void queue_append(struct sim_queue *queue, struct sim_item *item)
{
    item->previous = queue->tail;
    if (queue->tail)
        queue->tail->next = item;
    else
        queue->head = item;
    queue->tail = item;
    queue->length++;
    unfinished++;
    if (!queue->listed)
        queue_list(queue);
}

static void queue_make_room(struct sim_queue *queue)
{
    if (time_is_manual() || queue->length < QUEUE_LIMIT)
        return;
    engine_wait((struct sim_point){queue->slot, queue->head->number + QUEUE_LIMIT / 4});
}

struct sim_point engine_submit(struct sim_queue *queue, struct sim_work *work,
                               const struct sim_point *point, const struct sim_clock *clock)
{
    queue_make_room(queue);
    engine_run();
    if (!queue->has_slot)
        queue_take_slot(queue);
    struct sim_item *item = item_new(queue, work);
    for (struct sim_queue *other = active; other; other = other->next) {
        if (!queue_joins(queue, other))
            continue;
        struct sim_point last = {other->slot, other->tail->number};
        item_add_point(item, last);
        clock_merge(&queue->clock, &other->clock);
    }
    if (point)
        item_add_point(item, *point);
    if (clock)
        clock_merge(&queue->clock, clock);
    struct sim_point own = {queue->slot, item->number};
    clock_reach(&queue->clock, own);
    check_submission(item);
    queue_append(queue, item);
    if (work->visible)
        host_wake();
    engine_run();
    return own;
}

static void item_start(struct sim_item *item)
{
    for (size_t i = 0; i < item->after_count; i++)
        if (!engine_passed(item->after[i]))
            return;
    item->started = 1;
    item->end = cursor + item->work.ns;
    if (item->work.host)
        host_offer(item);
}

/* Work that something outside the clock ends holds on past its time. */
static int item_held(const struct sim_item *item)
{
    const struct sim_work *work = &item->work;
    if (work->spin && !__atomic_load_n(work->spin, __ATOMIC_ACQUIRE))
        return 1;
    if (work->kind == WORK_VALUE && !work->value_writes && !work_value_met(work))
        return 1;
    return work->host && item->host_state != HOST_DONE;
}

static void item_carry_out(struct sim_item *item)
{
    struct sim_work *work = &item->work;
    if (work->kind == WORK_COPY || work->kind == WORK_SET)
        transfer_carry_out(&work->transfer);
    if (work->kind == WORK_VALUE && work->value_writes)
        work_value_write(work);
    if (work->kind == WORK_FREE)
        memory_release(work->memory);
    if (work->event)
        event_finish(work->event, work->event_turn, cursor);
    if (work->signal)
        __atomic_store_n(work->signal, 1, __ATOMIC_RELEASE);
}

static void item_finish(struct sim_item *item)
{
    struct sim_queue *queue = item->queue;
    item_carry_out(item);
    slots[queue->slot].done = item->number;
    queue->head = item->next;
    if (item->next)
        item->next->previous = NULL;
    else
        queue->tail = NULL;
    queue->length--;
    unfinished--;
    if (!queue->head)
        queue_unlist(queue);
    work_dispose(&item->work);
    free(item->after);
    free(item->physical);
    item->next = spare_items;
    spare_items = item;
}

/* The piece of work that ends next, or NULL when all that could is held from outside. */
static struct sim_item *engine_next(void)
{
    struct sim_item *first = NULL;
    for (struct sim_queue *queue = active; queue; queue = queue->next) {
        struct sim_item *item = queue->head;
        if (!item->started)
            item_start(item);
        if (!item->started || item_held(item))
            continue;
        if (!first || item->end < first->end ||
            (item->end == first->end && item->order < first->order))
            first = item;
    }
    return first;
}

void engine_run(void)
{
    uint64_t now = time_now();
    for (struct sim_item *item = engine_next(); item && item->end <= now; item = engine_next()) {
        if (cursor < item->end)
            cursor = item->end;
        item_finish(item);
    }
    if (cursor < now)
        cursor = now;
}

uint64_t engine_next_end(void)
{
    struct sim_item *item = engine_next();
    return item ? item->end : UINT64_MAX;
}

void engine_wait(struct sim_point point)
{
    engine_run();
    while (!engine_passed(point)) {
        uint64_t end = engine_next_end();
        if (end != UINT64_MAX && time_is_manual()) {
            time_jump_to(end);
        } else {
            uint64_t now = time_now();
            engine_unlock();
            time_nap(end == UINT64_MAX ? 100000 : end > now ? end - now : 0);
            engine_lock();
        }
        engine_run();
    }
}
