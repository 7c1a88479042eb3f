#include "calls.h"
#include "device.h"
#include "lane.h"

static void is_reusable(struct step *step, int t, const char *words)
{
    struct state *s = &step->state;
    s->blocks[s->threads[t].block - 1].state = REUSABLE;
    s->threads[t] = (struct thread){.note = s->threads[t].note};
    step->words = words;
}

/* SINGLE: the bits are set in the same word by compare-and-swap. */
static void on_the_lane(struct steps *steps, int t)
{
    struct step *step = step_new(steps, t, "", 0, 0);
    struct state *s = &step->state;
    int b = s->threads[t].block - 1;
    if (PLANTED(EARLY_APART)) {
        s->threads[t].pc = FREE_FLAG;
        step->words = "loads the word: SINGLE";
    } else {
        for (int u = 0; u < THREADS && !(s->bits & EARLY); u++)
            s->threads[u].note = 0; /* made under another word */
        if ((s->bits & (EARLY | DIRTY)) != (EARLY | DIRTY))
            lane_word_changed(s);
        s->bits |= EARLY | DIRTY;
        is_reusable(step, t, "SINGLE, early and dirty: reusable");
    }
    if (s->blocks[b].state == REUSABLE && s->blocks[b].exported)
        for (int i = 0; i < s->number; i++)
            if (s->works[i].touches == b + 1)
                step_breaks(step,
                            "a block that others can reach is reused before its work is done");
}

void free_seal(struct step *step, int t, uint8_t blocks, int context)
{
    struct state *s = &step->state;
    struct thread *thread = &s->threads[t];
    thread->blocks = blocks;
    for (int b = 0; b < BLOCKS; b++)
        if (blocks & 1 << b)
            s->blocks[b].state = SEALED;
    thread->pc = FENCE_GATE;
    if (s->mode != MANY || (s->context != context && !PLANTED(OTHER_CONTEXT_RESTORES)))
        return;
    if (s->candidate == NO_CANDIDATE) {
        s->candidate = IN_GRACE;
        thread->pc = FENCE_EPOCH;
        if (PLANTED(EPOCH_FIRST)) {
            lane_epoch(s);
        } else if (!PLANTED(USED_RESET_LATE)) {
            lane_generation(s);
            s->used = 0;
        }
    } else if (s->candidate == IN_GRACE) {
        thread->pc = FENCE_SCAN;
    } else if (PLANTED(CANDIDATE_SHARED)) {
        lane_generation(s);
        s->used = 0;
    }
    if (thread->pc != FENCE_GATE)
        s->lock = t + 1;
}

/* FENCE_SCAN: no submission from before the notes became void is under way? */
static void scan(struct steps *steps, int t)
{
    struct step *step = step_to(steps, t, "no older slot: its fence is the candidate", FENCE_GATE);
    struct state *s = &step->state;
    int older = 0;
    for (int u = 0; u < THREADS; u++) {
        if (s->threads[u].slot == SLOT_OLD &&
            !(PLANTED(NO_MEMBARRIER) && s->threads[u].flags & BUFFERED))
            older = 1;
        if (!PLANTED(NO_MEMBARRIER))
            s->threads[u].flags &= ~BUFFERED;
    }
    s->lock = 0;
    if (older && !PLANTED(SLOTS_AT_PASSING)) {
        step->words = "an older slot: no candidate yet";
        return;
    }
    s->candidate = CANDIDATE_SEALED;
    s->threads[t].flags |= HAS_CANDIDATE;
}

/* FENCE_GATE: a context event and a beginning capture exclude each other. */
static void gate(struct steps *steps, int t)
{
    struct step *step = step_to(steps, t, "may record", FENCE_RECORD);
    struct state *s = &step->state;
    struct thread *thread = &s->threads[t];
    if (!s->captures) {
        s->recordings++;
        return;
    }
    step->words = "a capture is active: no fence now";
    if (thread->flags & HAS_CANDIDATE)
        s->candidate = NO_CANDIDATE;
    for (int b = 0; b < BLOCKS; b++)
        if (thread->blocks & 1 << b)
            s->blocks[b].state = UNFENCED;
    *thread = (struct thread){.note = thread->note};
}

static void record(struct steps *steps, int t)
{
    struct step *step = step_to(steps, t, "records the fence", IDLE);
    struct state *s = &step->state;
    struct thread *thread = &s->threads[t];
    int first = 0;
    while (!(thread->blocks & 1 << first))
        first++;
    uint8_t work = device_record(step, steps->config->block_context[first]);
    for (int b = 0; b < BLOCKS; b++)
        if (thread->blocks & 1 << b) {
            s->blocks[b].state = PENDING;
            s->blocks[b].fence = work;
        }
    s->recordings--;
    if (thread->flags & HAS_CANDIDATE) {
        s->candidate = CANDIDATE_RECORDED;
        s->candidate_mark = work;
        if (PLANTED(USED_RESET_LATE)) {
            lane_generation(s);
            s->used = 0;
        }
    }
    *thread = (struct thread){.note = thread->note};
}

/* Planted: the event first; whoever frees meanwhile puts its block under it. */
static void record_then_seal(struct steps *steps, int t)
{
    struct step *step =
        step_to(steps, t, "records the fence, before its batch is closed", FENCE_LATE_SEAL);
    struct state *s = &step->state;
    struct thread *thread = &s->threads[t], *other = s->threads;
    int b = thread->block - 1;
    thread->blocks = 1 << b;
    s->blocks[b].state = SEALED;
    s->blocks[b].fence = device_record(step, steps->config->block_context[b]);
    while (other < s->threads + THREADS && (other == thread || other->pc != FENCE_LATE_SEAL))
        other++;
    if (other == s->threads + THREADS)
        return;
    for (int c = 0; c < BLOCKS; c++)
        if (other->blocks & 1 << c)
            s->blocks[b].fence = steps->from->blocks[c].fence;
    other->blocks |= 1 << b;
    *thread = (struct thread){.note = thread->note};
    step->words = "puts the block into the batch of the other";
}

static void late_seal(struct steps *steps, int t)
{
    struct step *step = step_to(steps, t, "closes the batch", IDLE);
    struct thread *thread = &step->state.threads[t];
    for (int b = 0; b < BLOCKS; b++)
        if (thread->blocks & 1 << b)
            step->state.blocks[b].state = PENDING;
    *thread = (struct thread){.note = thread->note};
}

static void decide(struct steps *steps, int t)
{
    const struct state *s = steps->from;
    const struct thread *thread = &s->threads[t];
    int b = thread->block - 1;
    int fenced = (s->blocks[b].exported && !PLANTED(EXPORTED_ON_LANE)) ||
                 (thread->flags & ASYNC && !PLANTED(ASYNC_ON_LANE)) ||
                 (s->mode == SINGLE && steps->config->block_context[b] != s->context &&
                  !PLANTED(OTHER_CONTEXT_MARKS));
    if (s->mode == NONE && !fenced) {
        is_reusable(step_new(steps, t, "", 0, 0), t, "NONE: reusable");
    } else if (s->mode == SINGLE && !fenced) {
        on_the_lane(steps, t);
    } else if (PLANTED(RECORD_THEN_SEAL)) {
        record_then_seal(steps, t);
    } else if (lane_may_lock(s, t)) {
        struct step *step = step_new(steps, t, "seals its fence", 0, 0);
        free_seal(step, t, 1 << b, steps->config->block_context[b]);
    }
}

/* A free without the lock, cut where others can come between (lane_free, own.c): it looks
 * at the word, then at the lane's context, then makes the word dirty, and keeps the block at last.
 */
static void look(struct steps *steps, int t)
{
    const struct state *s = steps->from;
    if (s->mode == NONE) {
        step_to(steps, t, "looks at the word: NONE", FREE_KEEP);
    } else if (s->mode == MANY) {
        step_to(steps, t, "looks at the word: MANY", FREE_DECIDE);
    } else {
        struct step *step = step_to(steps, t, "looks at the word: SINGLE", FREE_CONTEXT);
        step->state.threads[t].flags &= ~CHANGED;
        /* Need it not be changed? Then what was true at the look is enough. */
        step->state.threads[t].after = (s->bits & (EARLY | DIRTY)) == (EARLY | DIRTY);
    }
}

static void look_at_context(struct steps *steps, int t)
{
    const struct state *s = steps->from;
    int same = steps->config->block_context[s->threads[t].block - 1] == s->context;
    step_to(steps, t, "looks at the lane's context", same ? FREE_SET : FREE_DECIDE);
}

static void set_early(struct steps *steps, int t)
{
    const struct thread *thread = &steps->from->threads[t];
    struct step *step = step_to(steps, t, "the word is as it was", FREE_KEEP);
    struct state *s = &step->state;
    if (thread->flags & CHANGED && !thread->after && !PLANTED(KEPT_ANYWAY)) {
        step->words = "the word has changed";
        s->threads[t].pc = FREE_LOOK;
    } else if (!thread->after && s->mode == SINGLE && !PLANTED(KEPT_UNMARKED)) {
        step->words = "SINGLE: early and dirty";
        lane_word_changed(s);
        for (int u = 0; u < THREADS && !(s->bits & EARLY); u++)
            s->threads[u].note = 0; /* made under another word */
        s->bits |= EARLY | DIRTY;
    }
    s->threads[t].flags &= ~CHANGED;
    s->threads[t].after = 0;
}

void free_steps(struct steps *steps, int t)
{
    struct step *step;
    switch (steps->from->threads[t].pc) {
    case FREE_DECIDE:
        decide(steps, t);
        break;
    case FREE_FLAG:
        step = step_new(steps, t, "", 0, 0);
        if (step->state.mode == SINGLE)
            step->state.bits |= EARLY | DIRTY;
        is_reusable(step, t, "early, in a word of its own: reusable");
        break;
    case FREE_LOOK:
        look(steps, t);
        break;
    case FREE_CONTEXT:
        look_at_context(steps, t);
        break;
    case FREE_SET:
        set_early(steps, t);
        break;
    case FREE_KEEP:
        is_reusable(step_new(steps, t, "", 0, 0), t, "keeps the block in its cache");
        break;
    case FENCE_EPOCH:
        step = step_to(steps, t, PLANTED(EPOCH_FIRST) ? "generation + 1" : "epoch + 1", FENCE_SCAN);
        if (PLANTED(EPOCH_FIRST)) {
            lane_generation(&step->state);
            step->state.used = 0;
        } else {
            lane_epoch(&step->state);
        }
        break;
    case FENCE_SCAN:
        scan(steps, t);
        break;
    case FENCE_GATE:
        gate(steps, t);
        break;
    case FENCE_RECORD:
        record(steps, t);
        break;
    case FENCE_LATE_SEAL:
        late_seal(steps, t);
        break;
    }
}

/* A stream-ordered free: the program has ordered all work on the block before it, on some stream.
 */
static int ordered_on_a_stream(const struct state *s, const struct config *config, int b)
{
    uint8_t work = 0;
    for (int i = 0; i < s->number; i++)
        if (s->works[i].touches == b + 1 && !s->works[i].old)
            work |= 1 << i;
    for (int k = 0; k < config->streams; k++)
        if (!(work & ~s->tail[k]))
            return 1;
    return 0;
}

/* Natively a free does not wait for work of other contexts: such a program is wrong. */
static int used_elsewhere(const struct state *s, const struct config *config, int b)
{
    for (int i = 0; i < s->number; i++)
        if (s->works[i].touches == b + 1 && s->works[i].context != config->block_context[b])
            return 1;
    return 0;
}

void free_calls(struct steps *steps, int t)
{
    const struct config *config = steps->config;
    const struct state *s = steps->from;
    for (int b = 0; b < config->blocks; b++) {
        if (s->blocks[b].state != LIVE || submits_touching(s, b) || used_elsewhere(s, config, b) ||
            s->dead & 1 << config->block_context[b])
            continue;
        for (int async = 0; async <= (config->programs & ASYNC_FREES ? 1 : 0); async++) {
            if (async && !ordered_on_a_stream(s, config, b))
                continue;
            struct step *step = step_to(
                steps, t, async ? "frees block %d, on a stream" : "frees block %d", FREE_DECIDE);
            step->a = b;
            step->state.blocks[b].state = FREEING;
            step->state.threads[t].block = b + 1;
            step->state.threads[t].flags = async ? ASYNC : 0;
            if (config->programs & CACHES && !async)
                step->state.threads[t].pc = FREE_LOOK;
            device_free_begins(&step->state, config, t, b);
        }
    }
}
