#include "calls.h"
#include "device.h"
#include "lane.h"

/* Whether the word, as loaded, lets thread t forward at once; a programmatic launch only right
 * after work that this thread put on the books of its stream, with no free since. */
static int fast(const struct state *s, const struct thread *thread)
{
    int key = lane_key(thread->stream), noted = thread->note == key + 1;
    if (s->mode == SINGLE) {
        int clean = !(s->bits & (DIRTY | MARKING)) || PLANTED(MARK_AT_JOIN);
        int in_order = !(thread->flags & PROGRAMMATIC) || PLANTED(PROGRAMMATIC_BY_WORD);
        return s->lane == key && clean && (noted || in_order);
    }
    return s->mode == MANY && noted;
}

static void is_booked(struct thread *thread)
{
    thread->note = lane_key(thread->stream) + 1;
    thread->pc = SUBMIT_EFFECT;
}

static void on_the_books(struct state *s, const struct config *config, struct thread *thread)
{
    int context = config->stream_context[thread->stream];
    if (s->context == NO_CONTEXT)
        s->context = context;
    else if (s->context != context)
        s->mixed = 1;
    s->used |= 1 << lane_key(thread->stream);
    is_booked(thread);
}

static void in_single(struct step *step, const struct config *config, int t)
{
    struct state *s = &step->state;
    struct thread *thread = &s->threads[t];
    int same = s->lane == lane_key(thread->stream);
    if (s->bits & DIRTY && !(same && PLANTED(MARK_AT_JOIN))) {
        lane_mark(step, t, SUBMIT_LOCK);
    } else if (same) {
        is_booked(thread);
        step->words = "is on the lane";
    } else if (PLANTED(LEFT_BY_STORE)) {
        s->lock = t + 1;
        thread->after = s->bits;
        thread->pc = SUBMIT_STORE;
        step->words = "sees a clean lane";
    } else {
        if (config->stream_context[thread->stream] != s->context)
            s->mixed = 1;
        lane_leave(s, SEVERAL);
        step->words = "leaves the lane: MANY";
    }
}

/* SUBMIT_LOCK: one round under the lock. */
static void slow(struct steps *steps, int t)
{
    const struct state *from = steps->from;
    if (!lane_may_lock(from, t) || (from->mode == SINGLE && from->bits & MARKING))
        return;
    struct step *step = step_new(steps, t, "", 0, 0);
    struct state *s = &step->state;
    struct thread *thread = &s->threads[t];
    if (s->capturing && s->active & 1 << thread->stream && !PLANTED(CAPTURE_JOINED)) {
        thread->pc = SUBMIT_END;
        step->words = "is captured";
    } else if (s->mode == NONE) {
        s->mode = SINGLE;
        s->lane = lane_key(thread->stream);
        s->context = steps->config->stream_context[thread->stream];
        is_booked(thread);
        step->words = "NONE becomes SINGLE";
    } else if (s->mode == SINGLE) {
        in_single(step, steps->config, t);
    } else if (s->owed && (s->mark || s->mark_gone) &&
               thread->note != lane_key(thread->stream) + 1) {
        thread->flags &= ~CHANGED;
        thread->mark = s->mark;
        thread->pc = SUBMIT_JOIN;
        step->words = "MANY: must join E";
    } else {
        on_the_books(s, steps->config, thread);
        step->words = "MANY: on the books";
    }
}

static void joined(struct steps *steps, int t)
{
    struct step *step = step_new(steps, t, "has joined: on the books", 0, 0);
    struct thread *thread = &step->state.threads[t];
    thread->mark = 0;
    if (thread->flags & CHANGED) {
        thread->flags &= ~CHANGED;
        thread->pc = SUBMIT_LOCK;
        step->words = "the word changed: again";
        return;
    }
    if (PLANTED(FIRST_ONLY))
        step->state.owed = 0;
    on_the_books(&step->state, steps->config, thread);
}

static void effect(struct steps *steps, int t)
{
    if (steps->from->number == steps->config->works)
        return;
    struct step *step = step_to(steps, t, "the driver has the work", SUBMIT_END);
    device_submit(step, steps->config, t);
    step->state.threads[t].block = step->state.threads[t].fresh = 0;
}

void submit_steps(struct steps *steps, int t)
{
    const struct state *s = steps->from;
    const struct thread *thread = &s->threads[t];
    struct step *step;
    switch (thread->pc) {
    case SUBMIT_SLOT:
        step = step_to(steps, t, "writes its slot", SUBMIT_LOAD);
        step->state.threads[t].slot = thread->flags & EPOCH_OLD ? SLOT_OLD : SLOT_CURRENT;
        step->state.threads[t].flags = (thread->flags & ~EPOCH_OLD) | BUFFERED;
        if (PLANTED(NO_SLOT_WRITTEN)) {
            step->state.threads[t].slot = NO_SLOT;
            step->state.threads[t].flags &= ~BUFFERED;
        }
        break;
    case SUBMIT_LOAD:
        if (fast(s, thread)) {
            step_to(steps, t, "loads the word: forwards at once", SUBMIT_EFFECT);
            break;
        }
        step = step_to(steps, t, "loads the word: slow path", SUBMIT_LOCK);
        if (!PLANTED(PROGRAMMATIC_KEPT))
            step->state.threads[t].flags &= ~PROGRAMMATIC;
        break;
    case SUBMIT_LOCK:
        slow(steps, t);
        break;
    case SUBMIT_STORE:
        step = step_to(steps, t, "stores MANY", SUBMIT_LOCK);
        step->state.bits = thread->after;
        step->state.threads[t].after = step->state.lock = 0;
        lane_leave(&step->state, SEVERAL);
        break;
    case SUBMIT_JOIN:
        device_join(step_to(steps, t, "the stream waits for E", SUBMIT_JOINED), steps->config, t);
        break;
    case SUBMIT_JOINED:
        if (lane_may_lock(s, t))
            joined(steps, t);
        break;
    case SUBMIT_EFFECT:
        effect(steps, t);
        break;
    case SUBMIT_END:
        step = step_to(steps, t, "the submission returns", IDLE);
        step->state.threads[t] = (struct thread){.note = thread->note};
        break;
    }
}

/* Thread t calls a function that submits. */
static void call(struct steps *steps, int t, int stream, int block, int flags)
{
    const char *words = "submits to stream %d";
    if (block)
        words = "submits to stream %d, touching block %d";
    if (flags & PROGRAMMATIC)
        words = block ? "launches programmatically on stream %d, touching block %d"
                      : "launches programmatically on stream %d";
    struct step *step = step_to(steps, t, words, SUBMIT_SLOT);
    step->a = stream;
    step->b = block - 1;
    struct thread *thread = &step->state.threads[t];
    int context = steps->config->stream_context[stream];
    thread->stream = stream;
    thread->block = block;
    thread->flags = flags;
    thread->fresh = device_fresh(steps->from, steps->config, context);
    if (PLANTED(GRAPH_UNCOUNTED) || (PLANTED(CONTEXT_IGNORED) && context))
        thread->pc = SUBMIT_EFFECT;
}

void submit_calls(struct steps *steps, int t)
{
    const struct config *config = steps->config;
    const struct state *s = steps->from;
    for (int k = 0; k < config->streams; k++) {
        if ((s->closing | s->gone) & 1 << k || s->dead & 1 << config->stream_context[k])
            continue;
        if (s->active & 1 << k) {
            call(steps, t, k, 0, 0);
            continue;
        }
        for (int b = config->touch_only; b <= config->blocks; b++) {
            if (b &&
                (s->blocks[b - 1].state != LIVE || s->dead & 1 << config->block_context[b - 1]))
                continue;
            call(steps, t, k, b, 0);
            if (config->programs & PROGRAMMATICS)
                call(steps, t, k, b, PROGRAMMATIC);
        }
    }
}

int submits_to(const struct state *s, int stream)
{
    for (int t = 0; t < THREADS; t++) {
        const struct thread *thread = &s->threads[t];
        int pc = thread->pc == MARK_RECORD || thread->pc == MARK_ADOPT ? thread->after : thread->pc;
        if (((pc >= SUBMIT_SLOT && pc <= SUBMIT_END) ||
             (pc >= CAPTURE_LOCK && pc <= DESTROY_LATE)) &&
            thread->stream == stream)
            return 1;
    }
    return 0;
}

int submits_touching(const struct state *s, int b)
{
    for (int t = 0; t < THREADS; t++)
        if (s->threads[t].block == b + 1)
            return 1;
    return 0;
}
