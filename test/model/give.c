/* What leaves the process or the mapping: exports, and memory that is unmapped. */
#include "calls.h"
#include "device.h"
#include "lane.h"

static void given(struct step *step, int t)
{
    struct state *s = &step->state;
    struct thread *thread = &s->threads[t];
    int b = thread->block - 1;
    for (int i = 0; i < s->number; i++)
        if (s->works[i].touches == b + 1 && s->works[i].old)
            step_breaks(step, "a block leaves while work from before its free is unfinished");
    if (thread->flags & UNMAPS)
        s->blocks[b].state = REUSABLE;
    else
        s->blocks[b].exported = 1;
    *thread = (struct thread){.note = thread->note};
}

static void wait_for_mark(struct steps *steps, int t)
{
    const struct state *from = steps->from;
    if (!lane_may_lock(from, t) || (from->mode == SINGLE && from->bits & MARKING))
        return;
    struct step *step = step_to(steps, t, "waits for E on the host", GIVE_WAIT);
    struct state *s = &step->state;
    int needed = s->mode == SINGLE ? s->bits & EARLY : s->mode == MANY && s->owed;
    if (PLANTED(GIVEN_AT_ONCE)) {
        s->threads[t].mark = 0;
    } else if (s->mode == SINGLE && s->bits & DIRTY) {
        lane_mark(step, t, GIVE_LOCK);
    } else if (needed) {
        s->threads[t].mark = s->mark;
        device_check_wait(step, steps->config, t, s->mark);
    }
}

void give_steps(struct steps *steps, int t)
{
    const struct thread *thread = &steps->from->threads[t];
    if (thread->pc == GIVE_LOCK)
        wait_for_mark(steps, t);
    else if (thread->pc == GIVE_WAIT && !thread->mark)
        given(step_new(steps, t, thread->flags & UNMAPS ? "unmaps the block" : "exports the block",
                       0, 0),
              t);
}

void give_calls(struct steps *steps, int t)
{
    const struct config *config = steps->config;
    for (int b = 0; b < config->blocks; b++) {
        struct block block = steps->from->blocks[b];
        struct step *step;
        if (block.state == LIVE && !block.exported && config->programs & EXPORTS &&
            !submits_touching(steps->from, b)) {
            step = step_to(steps, t, "exports block %d", GIVE_LOCK);
        } else if (block.state == REUSABLE && config->programs & UNMAPPING) {
            step = step_to(steps, t, "gives back block %d", GIVE_LOCK);
            step->state.blocks[b].state = TAKEN;
            step->state.threads[t].flags = UNMAPS;
        } else {
            continue;
        }
        step->a = b;
        step->state.threads[t].block = b + 1;
    }
}
