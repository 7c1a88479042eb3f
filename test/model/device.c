#include "device.h"

uint8_t device_work_of(const struct state *state, int context)
{
    uint8_t work = 0;
    for (int i = 0; i < state->number; i++)
        if (state->works[i].context == context)
            work |= 1 << i;
    return work;
}

uint8_t device_record(struct step *step, int context)
{
    if (step->state.active)
        step_breaks(step, "a context event is recorded while a capture is active");
    return device_work_of(&step->state, context);
}

/* Work in the set and all that it waits for. */
static uint8_t closure(const struct state *state, uint8_t work)
{
    for (int i = 0; i < state->number; i++)
        if (work & 1 << i)
            work |= state->works[i].deps;
    return work;
}

static uint8_t work_on(const struct state *state, int stream)
{
    uint8_t work = 0;
    for (int i = 0; i < state->number; i++)
        if (state->works[i].where == stream)
            work |= 1 << i;
    return work;
}

/* What new work on the stream waits for. Stream 2 is non-blocking beside a legacy stream. */
static uint8_t waits_for(const struct state *state, const struct config *config, int stream)
{
    uint8_t deps = state->tail[stream];
    if (config->legacy && stream < 2)
        deps |= closure(state, work_on(state, 1 - stream));
    return deps;
}

void device_submit(struct step *step, const struct config *config, int t)
{
    struct state *s = &step->state;
    struct thread *thread = &s->threads[t];
    int i = s->number++;
    uint8_t deps = waits_for(s, config, thread->stream);
    struct work *work = &s->works[i];
    *work = (struct work){.where = thread->stream,
                          .context = config->stream_context[thread->stream],
                          .touches = thread->block,
                          .fresh = thread->fresh};
    s->tail[thread->stream] = deps | 1 << i;
    if (thread->flags & PROGRAMMATIC)
        deps = s->before[thread->stream];
    else if (config->programs & PROGRAMMATICS)
        s->before[thread->stream] = deps;
    work->deps = deps;
    for (int v = 0; work->touches && v < i; v++)
        if (s->works[v].touches == work->touches && s->works[v].old && !(deps & 1 << v))
            step_breaks(step, "corruption: work runs beside work from before its block was freed");
}

void device_check_wait(struct step *step, const struct config *config, int t, uint8_t work)
{
    uint8_t mine = config->strict ? 1 << t : 1;
    for (int i = 0; i < step->state.number; i++)
        if (work & 1 << i && step->state.works[i].fresh & mine)
            step_breaks(step, "hang: a wait for work that no free had waited for");
}

void device_join(struct step *step, const struct config *config, int t)
{
    struct state *s = &step->state;
    struct thread *thread = &s->threads[t];
    uint8_t work = closure(s, thread->mark);
    if (s->active & 1 << thread->stream)
        step_breaks(step, "a capturing stream is joined");
    if (s->mark_gone)
        step_breaks(step, "an event of a destroyed context is used");
    device_check_wait(step, config, t, work & ~waits_for(s, config, thread->stream));
    s->tail[thread->stream] |= work;
}

static int submits(const struct thread *thread)
{
    return (thread->pc >= SUBMIT_SLOT && thread->pc <= SUBMIT_EFFECT) ||
           ((thread->pc == MARK_RECORD || thread->pc == MARK_ADOPT) &&
            thread->after == SUBMIT_LOCK);
}

static int frees(const struct thread *thread)
{
    return thread->pc >= FREE_DECIDE && thread->pc <= FENCE_RECORD && !(thread->flags & ASYNC);
}

void device_free_begins(struct state *state, const struct config *config, int t, int b)
{
    uint8_t mine = config->strict ? 1 << t : 1;
    int sync = !(state->threads[t].flags & ASYNC), context = config->block_context[b];
    for (int i = 0; i < state->number; i++) {
        struct work *work = &state->works[i];
        if (work->touches == b + 1)
            work->old = 1;
        if (sync && work->context == context)
            work->fresh &= ~mine;
    }
    for (int u = 0; sync && u < config->threads; u++)
        if (submits(&state->threads[u]) &&
            config->stream_context[state->threads[u].stream] == context)
            state->threads[u].fresh &= ~mine;
}

uint8_t device_fresh(const struct state *state, const struct config *config, int context)
{
    uint8_t fresh = config->strict ? (1 << config->threads) - 1 : 1;
    for (int u = 0; u < config->threads; u++) {
        const struct thread *thread = &state->threads[u];
        if (frees(thread) && config->block_context[thread->block - 1] == context)
            fresh &= ~(config->strict ? 1 << u : 1);
    }
    return fresh;
}

static uint8_t without(uint8_t set, int i)
{
    uint8_t below = (1 << i) - 1;
    return (set & below) | (set >> 1 & ~below);
}

static void finish(struct state *s, int i)
{
    s->number--;
    for (int v = i; v < s->number; v++)
        s->works[v] = s->works[v + 1];
    s->works[s->number] = (struct work){0};
    for (int v = 0; v < s->number; v++)
        s->works[v].deps = without(s->works[v].deps, i);
    for (int k = 0; k < STREAMS; k++) {
        s->tail[k] = without(s->tail[k], i);
        s->before[k] = without(s->before[k], i);
    }
    for (int b = 0; b < BLOCKS; b++)
        s->blocks[b].fence = without(s->blocks[b].fence, i);
    for (int t = 0; t < THREADS; t++)
        s->threads[t].mark = without(s->threads[t].mark, i);
    s->mark = without(s->mark, i);
    s->candidate_mark = without(s->candidate_mark, i);
}

void device_stream_ends(struct state *state, int stream)
{
    for (int i = 0; i < state->number; i++)
        if (state->works[i].where == stream)
            state->works[i].where = ON_DEAD_STREAM;
    state->tail[stream] = state->before[stream] = 0;
}

void device_context_ends(struct state *state, int context)
{
    for (int i = state->number - 1; i >= 0; i--)
        if (state->works[i].context == context)
            finish(state, i);
}

void device_steps(struct steps *steps)
{
    for (int i = 0; i < steps->from->number; i++) {
        if (steps->from->works[i].deps)
            continue;
        int where = steps->from->works[i].where;
        struct step *step = step_new(
            steps, DEVICE, where < STREAMS ? "work on stream %d finishes" : "other work finishes",
            where, 0);
        finish(&step->state, i);
    }
}

void device_check_lane(struct step *step, const struct config *config)
{
    const struct state *s = &step->state;
    int lane = s->mode == SINGLE ? s->lane : -1;
    if (s->mode == MANY || config->harm_only)
        return;
    for (int i = 0; i < s->number; i++)
        if (s->works[i].where != lane)
            step_breaks(step, "unfinished work elsewhere than on the lane");
    for (int t = 0; t < config->threads; t++)
        if (s->threads[t].pc == SUBMIT_EFFECT && s->threads[t].stream != lane)
            step_breaks(step, "work under way to elsewhere than the lane");
}
