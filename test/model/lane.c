#include "lane.h"
#include "device.h"

void lane_word_changed(struct state *s)
{
    for (int t = 0; t < THREADS; t++)
        if (s->threads[t].pc == FREE_CONTEXT || s->threads[t].pc == FREE_SET)
            s->threads[t].flags |= CHANGED;
}

void lane_changed(struct state *s)
{
    lane_word_changed(s);
    for (int t = 0; t < THREADS; t++)
        if (s->threads[t].pc == SUBMIT_JOIN || s->threads[t].pc == SUBMIT_JOINED)
            s->threads[t].flags |= CHANGED;
}

void lane_generation(struct state *s)
{
    lane_changed(s);
    for (int t = 0; t < THREADS && !PLANTED(NOTE_KEPT); t++)
        s->threads[t].note = 0;
}

void lane_epoch(struct state *s)
{
    for (int t = 0; t < THREADS; t++) {
        struct thread *thread = &s->threads[t];
        if (thread->slot == SLOT_CURRENT)
            thread->slot = SLOT_OLD;
        if (thread->pc == SUBMIT_SLOT)
            thread->flags |= EPOCH_OLD;
    }
}

void lane_leave(struct state *s, uint8_t used)
{
    s->owed = s->mode == SINGLE && s->bits & EARLY && !PLANTED(NO_JOIN);
    s->mode = MANY;
    s->lane = s->bits = 0;
    s->used = used;
    s->candidate = NO_CANDIDATE;
    lane_generation(s);
}

void lane_mark(struct step *step, int t, enum pc after)
{
    struct state *s = &step->state;
    lane_word_changed(s);
    if (!PLANTED(DIRTY_CLEARED_AFTER))
        s->bits &= ~DIRTY;
    if (!PLANTED(NO_MARKING))
        s->bits |= MARKING;
    for (int u = 0; u < THREADS && !PLANTED(NOTE_OUTLIVES_MARK); u++)
        s->threads[u].note = 0;
    s->threads[t].pc = MARK_RECORD;
    s->threads[t].after = after;
    step->words = "sees the lane dirty: marking";
}

int lane_may_lock(const struct state *s, int t)
{
    return s->lock == 0 || s->lock == t + 1;
}

int lane_key(int stream)
{
    return PLANTED(KEY_SHARED) && stream == 1 ? 0 : stream;
}

void lane_mark_steps(struct steps *steps, int t)
{
    const struct thread *thread = &steps->from->threads[t];
    if (thread->pc == MARK_RECORD) {
        struct step *step = step_to(steps, t, "records E", MARK_ADOPT);
        step->state.threads[t].mark = device_record(step, step->state.context);
    } else if (thread->pc == MARK_ADOPT && lane_may_lock(steps->from, t)) {
        struct step *step = step_to(steps, t, "E is the mark", thread->after);
        struct state *s = &step->state;
        s->mark = thread->mark;
        s->mark_context = s->context;
        s->mark_gone = 0;
        lane_word_changed(s);
        s->bits &= ~MARKING;
        if (PLANTED(DIRTY_CLEARED_AFTER))
            s->bits &= ~DIRTY;
        if (PLANTED(JOIN_LOST))
            s->bits &= ~EARLY;
        s->threads[t].mark = s->threads[t].after = 0;
    }
}

/* The candidate has passed. */
static void restore(struct step *step, const struct config *config)
{
    struct state *s = &step->state;
    int several = s->used & (s->used - 1) || s->used & SEVERAL;
    s->candidate = NO_CANDIDATE;
    if ((s->capturing && !PLANTED(RESTORED_IN_CAPTURE)) || s->mixed || several) {
        step->words = "the candidate has passed, and is dropped";
        return;
    }
    if (s->owed && s->mark && !config->harm_only)
        step_breaks(step, "E is dropped, and has not passed");
    s->owed = 0;
    lane_changed(s);
    if (!s->used) {
        s->mode = NONE;
        s->context = NO_CONTEXT;
    } else {
        s->mode = SINGLE;
        s->lane = s->used == 1 ? 0 : s->used == 2 ? 1 : 2;
    }
    s->bits = s->used = 0;
    step->words =
        s->mode == NONE ? "the candidate has passed: NONE" : "the candidate has passed: SINGLE(%d)";
    step->a = s->lane;
}

void lane_poll_steps(struct steps *steps)
{
    const struct state *s = steps->from;
    if (s->candidate != CANDIDATE_RECORDED || s->candidate_mark || s->lock || s->mode != MANY)
        return;
    if (PLANTED(SLOTS_AT_PASSING)) {
        for (int t = 0; t < THREADS; t++)
            if (s->threads[t].slot == SLOT_OLD)
                return;
    }
    restore(step_new(steps, HOST, "", 0, 0), steps->config);
}
