/*
 * Queues of work in simulated time under one lock. A queue carries out its work in order; a vector
 * clock says what is ordered before its next piece.
 */
#ifndef SIM_ENGINE_H
#define SIM_ENGINE_H

#include "work.h"

/* MARKS joins everything of its context and is joined by nothing: context events and waits. */
enum sim_queue_kind { QUEUE_LEGACY, QUEUE_BLOCKING, QUEUE_FREE, QUEUE_MARKS };

/* Reached when the slot has finished its piece number `number`. */
struct sim_point {
    size_t slot;
    uint64_t number;
};

struct sim_clock {
    uint64_t *at;
    size_t count;
};

struct sim_item {
    struct sim_work work;
    struct sim_queue *queue;
    struct sim_item *next, *previous, *next_offered;
    struct sim_point *after;
    size_t after_count;
    struct sim_range *physical; /* what it touches as it lies in handles; NULL: no mapped memory */
    size_t physical_count;
    uint64_t number, order, end;
    int started, host_state;
};

struct sim_queue {
    enum sim_queue_kind kind;
    const void *context, *stream;
    size_t slot;
    int has_slot, orphan, listed;
    struct sim_clock clock;
    struct sim_item *head, *tail;
    struct sim_queue *next, *previous;
    size_t length;
};

void engine_lock(void);
void engine_unlock(void);
void engine_prepare(void);
struct sim_queue *queue_new(enum sim_queue_kind kind, const void *context, const void *stream);
void queue_drop(struct sim_queue *queue);
struct sim_queue *engine_active(void);
/* Submit work (owned by the engine from here), after `point` too when it is given. */
struct sim_point engine_submit(struct sim_queue *queue, struct sim_work *work,
                               const struct sim_point *point, const struct sim_clock *clock);
int engine_passed(struct sim_point point);
void engine_run(void);
void engine_wait(struct sim_point point);
int engine_forked(void);
void clock_merge(struct sim_clock *to, const struct sim_clock *from);

#endif
