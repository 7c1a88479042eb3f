#include "calls.h"
#include "device.h"
#include "lane.h"

/* CAPTURE_LOCK: the lane is left while events may still be recorded. */
static void leave(struct steps *steps, int t)
{
    const struct state *from = steps->from;
    if (!lane_may_lock(from, t) || (from->mode == SINGLE && from->bits & MARKING))
        return;
    struct step *step = step_to(steps, t, "counts its capture", CAPTURE_COUNT);
    struct state *s = &step->state;
    if (!s->threads[t].blocks) {
        s->threads[t].blocks = 1; /* counted */
        s->capturing++;
    }
    if (s->mode == SINGLE && s->bits & DIRTY)
        lane_mark(step, t, CAPTURE_LOCK);
    else if (s->mode != MANY)
        lane_leave(s, s->mode == NONE ? 0 : SEVERAL);
}

static void begin(struct steps *steps, int t)
{
    if (steps->from->recordings && !PLANTED(CAPTURE_COUNTED_LATE))
        return;
    struct step *step = step_to(steps, t, "the driver captures the stream", IDLE);
    struct state *s = &step->state;
    struct thread *thread = &s->threads[t];
    s->active |= 1 << thread->stream;
    s->closing &= ~(1 << thread->stream);
    if (PLANTED(CAPTURE_COUNTED_LATE)) {
        thread->pc = CAPTURE_LOCK;
        return;
    }
    *thread = (struct thread){.note = thread->note};
}

static void last(struct steps *steps, int t)
{
    struct step *step = step_to(steps, t, "has ended its capture", IDLE);
    struct state *s = &step->state;
    uint8_t blocks = 0;
    int context = -1;
    s->capturing--;
    for (int b = 0; b < BLOCKS && !s->captures; b++) {
        if (s->blocks[b].state != UNFENCED)
            continue;
        if (context < 0)
            context = steps->config->block_context[b];
        if (steps->config->block_context[b] == context)
            blocks |= 1 << b;
    }
    s->threads[t] = (struct thread){.note = s->threads[t].note};
    if (blocks) {
        step->words = "has ended the last capture: one fence for the frees in it";
        s->threads[t].flags = ASYNC;
        free_seal(step, t, blocks, context);
    }
}

void capture_steps(struct steps *steps, int t)
{
    const struct state *s = steps->from;
    struct step *step;
    switch (s->threads[t].pc) {
    case CAPTURE_LOCK:
        leave(steps, t);
        break;
    case CAPTURE_COUNT:
        step = step_to(steps, t, "no more context events", CAPTURE_BEGIN);
        step->state.captures++;
        if (PLANTED(CAPTURE_COUNTED_LATE))
            step->state.threads[t] = (struct thread){.note = s->threads[t].note};
        break;
    case CAPTURE_BEGIN:
        begin(steps, t);
        break;
    case CAPTURE_ENDED:
        step = step_to(steps, t, "one capture less", CAPTURE_LAST);
        step->state.captures--;
        break;
    case CAPTURE_LAST:
        if (lane_may_lock(s, t))
            last(steps, t);
        break;
    }
}

void capture_calls(struct steps *steps, int t)
{
    const struct config *config = steps->config;
    const struct state *s = steps->from;
    if (!(config->programs & CAPTURES))
        return;
    for (int k = 0; k < config->streams; k++) {
        if (submits_to(s, k) || (s->closing | s->gone) & 1 << k)
            continue;
        struct step *step;
        if (s->active & 1 << k) {
            step = step_to(steps, t, "ends the capture of stream %d", CAPTURE_ENDED);
            step->state.active &= ~(1 << k);
        } else {
            step = step_to(steps, t, "begins to capture stream %d",
                           PLANTED(CAPTURE_COUNTED_LATE) ? CAPTURE_BEGIN : CAPTURE_LOCK);
            step->state.closing |= 1 << k;
        }
        step->a = k;
        step->state.threads[t].stream = k;
    }
}
