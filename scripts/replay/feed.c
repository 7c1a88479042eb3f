/* The thread that reads: lines to operations, ids to slots, batch by batch. */
#include "scripts/replay/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BATCHES_LEFT 2 /* when all are made, who reads waits for so few: to wake it costs 10 us */

static const char no_memory[] = "no memory for what is allocated here";

/* An unused slot; UINT32_MAX without memory. `spare` has room for all that there are. */
static uint32_t take_slot(struct feed *feed)
{
    if (feed->spares)
        return feed->spare[--feed->spares];
    if (feed->slots == feed->room) {
        uint32_t room = feed->room ? 2 * feed->room : 4096;
        uint32_t *spare = room > feed->room ? realloc(feed->spare, room * sizeof *spare) : NULL;
        if (!spare)
            return UINT32_MAX;
        feed->spare = spare;
        feed->room = room;
    }
    return feed->slots++;
}

static const char *take_id(struct feed *feed, struct operation *operation, uint64_t id)
{
    uint32_t slot = take_slot(feed);
    if (slot == UINT32_MAX)
        return no_memory;
    int code = table_put(&feed->live, id, slot + UINT64_C(1));
    operation->slot = slot;
    return code > 0 ? "allocates what is allocated already" : code ? no_memory : NULL;
}

static const char *give_id(struct feed *feed, struct operation *operation, uint64_t id)
{
    uint64_t slot = table_take(&feed->live, id);
    if (!slot)
        return "frees what is not allocated";
    operation->slot = (uint32_t)(slot - 1);
    feed->spare[feed->spares++] = operation->slot;
    return NULL;
}

/* One more operation, or none if the line has none. */
static const char *add_line(struct feed *feed, struct batch *batch)
{
    struct operation *operation = &batch->operation[batch->count];
    uint64_t id = 0;
    const char *problem = trace_next(&feed->trace, operation, &id);
    if (problem || operation->kind == OP_NONE)
        return problem;
    if (operation->kind == OP_MALLOC)
        problem = take_id(feed, operation, id);
    else if (operation->kind == OP_FREE)
        problem = give_id(feed, operation, id);
    batch->count += !problem;
    return problem;
}

static void fill(struct feed *feed, struct batch *batch)
{
    struct trace *trace = &feed->trace;
    batch->count = 0;
    batch->problem = NULL;
    while (batch->count < BATCH_OPERATIONS && !batch->problem) {
        int filled = trace->begin < trace->end ? 1 : trace_fill(trace);
        if (filled > 0)
            batch->problem = add_line(feed, batch);
        else if (filled < 0)
            batch->problem = strerror(errno);
        if ((batch->is_last = filled <= 0))
            break;
    }
    batch->is_last |= batch->problem != NULL;
    batch->line = trace->line;
    batch->bytes = trace->bytes_read - (uint64_t)(trace->filled - trace->begin);
    batch->slots = feed->slots;
}

static void *read_all(void *context)
{
    struct feed *feed = context;
    for (int last = 0; !last;) {
        struct batch *batch = &feed->batch[feed->made % BATCHES];
        pthread_mutex_lock(&feed->lock);
        if (feed->made - feed->used == BATCHES)
            while (feed->made - feed->used > BATCHES_LEFT)
                pthread_cond_wait(&feed->changed, &feed->lock);
        pthread_mutex_unlock(&feed->lock);
        fill(feed, batch);
        last = batch->is_last;
        pthread_mutex_lock(&feed->lock);
        feed->made++;
        pthread_cond_signal(&feed->changed);
        pthread_mutex_unlock(&feed->lock);
    }
    return NULL;
}

int feed_start(struct feed *feed, int fd)
{
    trace_init(&feed->trace, fd);
    pthread_mutex_init(&feed->lock, NULL);
    pthread_cond_init(&feed->changed, NULL);
    return pthread_create(&feed->thread, NULL, read_all, feed);
}

const struct batch *feed_next(struct feed *feed)
{
    pthread_mutex_lock(&feed->lock);
    while (feed->made == feed->used)
        pthread_cond_wait(&feed->changed, &feed->lock);
    pthread_mutex_unlock(&feed->lock);
    return &feed->batch[feed->used % BATCHES];
}

void feed_end(struct feed *feed)
{
    pthread_join(feed->thread, NULL);
}

void feed_done(struct feed *feed)
{
    pthread_mutex_lock(&feed->lock);
    if (feed->made - ++feed->used == BATCHES_LEFT)
        pthread_cond_signal(&feed->changed);
    pthread_mutex_unlock(&feed->lock);
}
