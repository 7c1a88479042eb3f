#include "calls.h"
#include "device.h"
#include "lane.h"

/* DESTROY_LOCK: before the driver destroys the stream; what is on it stays outstanding. */
static void stream_leaves(struct steps *steps, int t)
{
    const struct state *from = steps->from;
    if (!lane_may_lock(from, t) || (from->mode == SINGLE && from->bits & MARKING))
        return;
    struct step *step = step_to(steps, t, "nothing of it on the books", DESTROY_DRIVER);
    struct state *s = &step->state;
    if (s->mode == SINGLE && s->lane == s->threads[t].stream) {
        step->words = "leaves the lane that ends: MANY";
        if (s->bits & DIRTY)
            lane_mark(step, t, DESTROY_LOCK);
        else
            lane_leave(s, SEVERAL);
    } else if (s->mode == MANY) {
        step->words = "a stream ends: used by several, notes are void";
        s->used |= SEVERAL;
        if (!PLANTED(NOTE_OF_DESTROYED))
            lane_generation(s);
    }
}

static void stream_ends(struct steps *steps, int t)
{
    struct step *step = step_to(steps, t, "the stream is destroyed; its handle comes back", IDLE);
    struct state *s = &step->state;
    struct thread *thread = &s->threads[t];
    device_stream_ends(s, thread->stream);
    s->closing &= ~(1 << thread->stream);
    if (PLANTED(DESTROY_NOTICED_LATE)) {
        thread->pc = DESTROY_LATE;
        return;
    }
    *thread = (struct thread){.note = thread->note};
}

static void late_notice(struct steps *steps, int t)
{
    struct step *step = step_to(steps, t, "learns that the stream was destroyed", IDLE);
    struct state *s = &step->state;
    if (s->mode == SINGLE && s->lane == s->threads[t].stream)
        lane_leave(s, SEVERAL);
    if (s->mode == MANY) {
        s->used |= SEVERAL;
        lane_generation(s);
    }
    s->threads[t] = (struct thread){.note = s->threads[t].note};
}

/* CONTEXT_LOCK: before the driver destroys context 1. */
static void context_leaves(struct steps *steps, int t)
{
    const struct state *from = steps->from;
    if (!lane_may_lock(from, t) || (from->mode == SINGLE && from->bits & MARKING))
        return;
    for (int u = 0; u < THREADS; u++)
        if (from->threads[u].pc == SUBMIT_JOIN && from->mark_context == 1)
            return;
    struct step *step = step_to(steps, t, "its mark and candidate are gone", CONTEXT_DRIVER);
    struct state *s = &step->state;
    if (s->mode == SINGLE && s->context == 1)
        lane_leave(s, SEVERAL);
    if (s->mode == MANY && s->context == 1 && s->candidate) {
        s->candidate = NO_CANDIDATE;
        s->candidate_mark = 0;
        s->used |= SEVERAL;
    }
    if (s->mark_context == 1 && !PLANTED(GONE_MARK_USED))
        s->mark = s->owed = 0;
}

static void context_ends(struct steps *steps, int t)
{
    struct step *step = step_to(steps, t, "context 1 is destroyed", IDLE);
    struct state *s = &step->state;
    s->mark_gone = s->owed && s->mark_context == 1;
    device_context_ends(s, 1);
    if (s->context == 1 && s->mode == MANY && !s->mixed)
        s->context = NO_CONTEXT;
    s->threads[t] = (struct thread){.note = s->threads[t].note};
}

void end_steps(struct steps *steps, int t)
{
    switch (steps->from->threads[t].pc) {
    case DESTROY_LOCK:
        stream_leaves(steps, t);
        break;
    case DESTROY_DRIVER:
        stream_ends(steps, t);
        break;
    case DESTROY_LATE:
        if (lane_may_lock(steps->from, t))
            late_notice(steps, t);
        break;
    case CONTEXT_LOCK:
        context_leaves(steps, t);
        break;
    case CONTEXT_DRIVER:
        context_ends(steps, t);
        break;
    }
}

/* The program uses context 1 in no other call. */
static int context_is_idle(const struct steps *steps)
{
    const struct state *s = steps->from;
    for (int u = 0; u < THREADS; u++) {
        const struct thread *thread = &s->threads[u];
        if (thread->pc == IDLE)
            continue;
        if (thread->pc >= CONTEXT_LOCK && thread->pc <= CONTEXT_DRIVER)
            return 0;
        if (steps->config->stream_context[thread->stream] == 1)
            return 0;
        for (int b = 0; b < steps->config->blocks; b++)
            if ((thread->block == b + 1 || thread->blocks & 1 << b) &&
                steps->config->block_context[b] == 1)
                return 0;
    }
    for (int k = 0; k < steps->config->streams; k++)
        if (s->active & 1 << k && steps->config->stream_context[k] == 1)
            return 0;
    return 1;
}

void end_calls(struct steps *steps, int t)
{
    const struct config *config = steps->config;
    const struct state *s = steps->from;
    for (int k = 0; k < config->streams; k++) {
        if (submits_to(s, k) || (s->closing | s->gone | s->active) & 1 << k ||
            s->dead & 1 << config->stream_context[k])
            continue;
        if (config->programs & DESTROYS && !(config->legacy && k == 0)) {
            struct step *step = step_to(steps, t, "destroys stream %d", DESTROY_LOCK);
            if (PLANTED(DESTROY_NOTICED_LATE) || PLANTED(DESTROY_FORGOTTEN))
                step->state.threads[t].pc = DESTROY_DRIVER;
            step->a = k;
            step->state.threads[t].stream = k;
            step->state.closing |= 1 << k;
        }
        if (config->programs & THREAD_ENDS && k == config->streams - 1) {
            struct step *step = step_new(steps, HOST, "the thread of stream %d ends", k, 0);
            if (PLANTED(KEY_COMES_BACK))
                device_stream_ends(&step->state, k);
            else
                step->state.gone |= 1 << k;
        }
    }
    if (config->programs & CONTEXT_ENDS && !(s->dead & 2) && context_is_idle(steps))
        step_to(steps, t, "destroys context 1", CONTEXT_LOCK)->state.dead |= 2;
}
