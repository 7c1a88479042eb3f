#include "model.h"
#include "calls.h"
#include "device.h"
#include "lane.h"

#include <stdio.h>
#include <stdlib.h>

enum plant plant;

struct step *step_new(struct steps *steps, int thread, const char *words, int a, int b)
{
    if (steps->number == MOST_STEPS) {
        fprintf(stderr, "more than %d steps from one state\n", MOST_STEPS);
        abort();
    }
    struct step *step = &steps->step[steps->number++];
    *step = (struct step){.state = *steps->from, .words = words, .thread = thread, .a = a, .b = b};
    return step;
}

struct step *step_to(struct steps *steps, int thread, const char *words, enum pc pc)
{
    struct step *step = step_new(steps, thread, words, 0, 0);
    step->state.threads[thread].pc = pc;
    return step;
}

void step_breaks(struct step *step, const char *property)
{
    if (!step->broken)
        step->broken = property;
}

static void thread_steps(struct steps *steps, int t)
{
    const struct thread *thread = &steps->from->threads[t];
    int before = steps->number;
    if (thread->flags & BUFFERED)
        step_new(steps, t, "its slot is seen", 0, 0)->state.threads[t].flags &= ~BUFFERED;
    if (thread->pc == IDLE) {
        submit_calls(steps, t);
        free_calls(steps, t);
        capture_calls(steps, t);
        end_calls(steps, t);
        give_calls(steps, t);
        return;
    }
    submit_steps(steps, t);
    lane_mark_steps(steps, t);
    free_steps(steps, t);
    capture_steps(steps, t);
    end_steps(steps, t);
    give_steps(steps, t);
    if (steps->number > before || steps->from->number)
        return;
    for (int u = 0; u < THREADS; u++)
        if (u != t && steps->from->threads[u].pc != IDLE)
            return;
    step_breaks(step_new(steps, t, "cannot go on", 0, 0), "hang: a thread waits for nobody");
}

/* Slots are read by the scan of a seal alone, after a membarrier: what it cannot tell apart is one.
 */
static void same_slots(struct state *s)
{
    for (int t = 0; t < THREADS; t++) {
        struct thread *thread = &s->threads[t];
        if (!PLANTED(NO_MEMBARRIER))
            thread->flags &= ~BUFFERED;
        if (s->candidate == IN_GRACE || PLANTED(SLOTS_AT_PASSING))
            continue;
        if (thread->slot == SLOT_OLD)
            thread->slot = SLOT_CURRENT;
        thread->flags &= ~EPOCH_OLD;
    }
}

/* States that differ in what nothing can see any more are one. A fence that has passed is taken as
 * seen at once, and a reusable block as handed out at once: nobody must use it. */
static void forget(struct state *s, const struct config *config)
{
    same_slots(s);
    if (!s->mark && !s->mark_gone)
        s->owed = 0;
    if (s->mode == MANY ? !s->owed : !(s->bits & EARLY) || s->bits & DIRTY)
        s->mark = 0;
    if (!s->mark && !s->mark_gone)
        s->mark_context = 0;
    int notes = s->mode == MANY || (s->mode == SINGLE && config->programs & PROGRAMMATICS);
    for (int t = 0; t < THREADS && !notes && !PLANTED(NOTE_KEPT); t++)
        s->threads[t].note = 0;
    for (int b = 0; b < config->blocks; b++) {
        struct block *block = &s->blocks[b];
        if (block->state == PENDING && !block->fence)
            block->state = REUSABLE;
        if (block->state == REUSABLE && !(config->programs & UNMAPPING))
            block->state = LIVE;
    }
}

void model_steps(struct steps *steps, const struct config *config, const struct state *from)
{
    steps->config = config;
    steps->from = from;
    steps->number = 0;
    for (int t = 0; t < config->threads; t++)
        thread_steps(steps, t);
    device_steps(steps);
    lane_poll_steps(steps);
    for (int b = 0; b < config->blocks; b++)
        if (from->blocks[b].state == REUSABLE && !from->lock)
            step_new(steps, HOST, "block %d is handed out", b, 0)->state.blocks[b].state = LIVE;
    for (int i = 0; i < steps->number; i++) {
        device_check_lane(&steps->step[i], config);
        forget(&steps->step[i].state, config);
    }
}

void model_begin(struct state *state, const struct config *config)
{
    *state = (struct state){.mode = NONE, .context = NO_CONTEXT};
    for (int b = 0; b < config->blocks; b++)
        state->blocks[b].state = REUSABLE;
    forget(state, config);
}
