/* Is all work seen?
 *
 * The rule of lanes (R1) holds only if every submission passes lane_submit. Two nets lie below it.
 *
 * Structure. Before an object is loaded, and when a context begins, `open` becomes 0: no free is
 * reusable at once. The next free asks `look_around`, which reads how the objects of the process
 * are bound. If some work may have passed, one free waits for all work. If a way past stays, `open`
 * stays 0, and each free waits.
 *
 * Behaviour. A look compares the books with the device. It records a context event while the books
 * say that nothing is outstanding, or that all outstanding work is on the lane. Behind it, it
 * records a control: an event that must not pass earlier than the context event.
 *
 * 1. Nothing is outstanding (NONE). The control is on a stream of our own. Until LOOKS looks in a
 *    row have found nothing, each free is a look. Later looks get rarer: in the end one free in
 *    MOST_FREES / 2 is a look, on average. If the event has not passed, the free waits for the
 *    control, up to WAIT_NS.
 * 2. All is on the lane (SINGLE). The control is on the lane's stream.
 * 3. The control has passed and the context event has not: the look is late. After a late look,
 *    looks begin anew: while nothing is outstanding, each free takes a fence until LOOKS looks in a
 *    row have found nothing.
 * 4. Late for LATE_NS is evidence: the device may pass the two events one after the other. ROUNDS
 *    pieces of evidence, without LOOKS looks between them that find nothing, end reuse at once.
 *    The control stands for what else may hold up an event: work of another process.
 *
 * The intervals are random, and the same in each run. */
#include "allocator/reuse/look.h"

#include "allocator/reuse/context_event.h"
#include "allocator/state/enter.h"

/* Of safety, not of policy: test/record/unseen.md says how long unseen work can go on. */
#define LOOKS 64        /* looks in a row that find nothing, before frees are believed */
#define WAIT_NS 100000  /* a free waits for a control; time between two questions about a look */
#define LATE_NS 5000    /* on an H200 the event never passes later than the control */
#define MOST_FREES 4096 /* frees of a thread between two looks, after MOST_DOUBLINGS doublings */
#define MOST_DOUBLINGS 11
#define LOOKS_TO_DOUBLE 4
#define MOST_MARKS 512     /* marks between two looks at a lane; for the first LOOKS looks: */
#define MOST_MARKS_FIRST 8 /* so many */
#define ROUNDS 4

_Thread_local struct look_allowance look_allowance;

static uint64_t load(const struct lane *lane)
{
    return atomic_load(&lane->state.word);
}

/* Returns a random number from 1 to `most` (xorshift). */
static unsigned random_up_to(struct lane *lane, unsigned most)
{
    uint64_t x = lane->random ? lane->random : UINT64_C(0x9e3779b97f4a7c15);
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    lane->random = x;
    return (unsigned)(x >> 33) % most + 1;
}

/* Returns the frees until the next look, after one that has found nothing. They grow with the looks,
 * so that unseen work that begins later is not believed for longer than the program has run. */
static unsigned frees_to_next(struct lane *lane)
{
    unsigned doublings = (lane->clear - LOOKS) / LOOKS_TO_DOUBLE;
    if (lane->clear < LOOKS)
        return 1;
    return random_up_to(lane, doublings < MOST_DOUBLINGS ? 2u << doublings : MOST_FREES);
}

/* No thread's allowance holds any longer. */
static void begin_anew(struct lane *lane)
{
    lane->clear = 0;
    atomic_fetch_add(&lane->state.trust, 1);
}

/* A look has found nothing. */
static void note_calm(struct lane *lane)
{
    if (++lane->calm >= LOOKS)
        lane->evidence = lane->calm = 0;
}

static void end_look(struct allocator *a)
{
    struct look *look = &a->look;
    if (look->fence)
        fence_drop(a, look->fence);
    *look = (struct look){.control = look->control};
}

void look_forget(struct allocator *a)
{
    a->look.control = NULL; /* it ends with its context */
    end_look(a);
}

/* From now on each free waits for all work: once, or (for_good) always. */
static void frees_wait(struct domain *domain, int for_good)
{
    for (struct allocator *a = domain->first; a; a = a->next) {
        a->host_work.unmarked++;
        a->host_work.unseen |= for_good;
        stats_begin(a->stats);
        allocator_note_slow(a);
        stats_end(a->stats);
    }
}

void look_end_reuse(struct domain *domain)
{
    atomic_store(&domain->lane.state.open, 0);
    domain->lane.past = 1;
    frees_wait(domain, 1);
}

/* Has the event passed, after a wait of at most `timeout_ns`? */
static int has_passed(struct allocator *a, void *event, uint64_t timeout_ns)
{
    allocator_call(a);
    int code = a->ops->fence_query(a->device, event);
    if (code == DEVICE_NOT_READY && timeout_ns)
        code = a->ops->fence_wait(a->device, event, timeout_ns);
    allocator_return(a);
    return code == 0;
}

/* Records the control on our own stream. */
static void record_control(struct allocator *a)
{
    void *event = a->look.control;
    int code = -1;
    if (a->ops->control_record) {
        allocator_call(a);
        code = a->ops->control_record(a->device, &event);
        allocator_return(a);
    }
    a->look.control = event;
    a->look.is_controlled = code == 0;
}

static void note_evidence(struct allocator *a)
{
    struct lane *lane = &a->domain->lane;
    lane->calm = 0;
    if (++lane->evidence < ROUNDS)
        return;
    lane->ops->unseen();
    look_end_reuse(a->domain);
}

/* Asks the device about a look that has not ended. The control is asked first. */
static void go_on(struct allocator *a)
{
    struct look *look = &a->look;
    uint64_t now = a->ops->now_ns();
    if (look->is_busy || now - look->asked_ns < WAIT_NS)
        return;
    look->asked_ns = now;
    look->is_busy = 1;
    int controlled = look->is_controlled && has_passed(a, look->control, 0);
    int passed = !a->life.forgotten && has_passed(a, look->fence->event, 0);
    if (!passed && !a->life.forgotten && controlled) {
        begin_anew(&a->domain->lane);
        if (look->is_late)
            note_evidence(a);
        look->is_late = 1;
    }
    if (!passed && !a->life.forgotten && (controlled || !look->is_controlled))
        record_control(a);
    look->is_busy = 0;
    if (a->life.forgotten) {
        look_forget(a);
    } else if (passed) {
        if (!look->is_late)
            note_calm(&a->domain->lane);
        end_look(a);
    }
}

/* Keeps the look for later: its event has not passed. */
static void keep(struct allocator *a, struct fence *fence)
{
    a->look.fence = fence;
    a->look.asked_ns = a->ops->now_ns();
    a->look.is_late = 0;
}

/* Records the event of a look while the books say `word`. Returns NULL if nothing follows from
 * it: it was not recorded, or the books have changed. */
static struct fence *record(struct allocator *a, uint64_t word)
{
    int code;
    a->look.is_busy = 1;
    struct fence *fence = fence_record_alone(a, &code);
    a->look.is_busy = 0;
    if (code == DEVICE_UNSUPPORTED && !fence)
        a->fences.no_events = 1;
    if (!fence || (!a->life.forgotten && load(&a->domain->lane) == word))
        return fence;
    fence_drop(a, fence);
    return NULL;
}

static int is_off(const struct allocator *a)
{
    const struct lane *lane = &a->domain->lane;
    return !lane->ops || !lane->ops->record || lane->past || lane->capturing || lane->closed ||
           a->life.error || a->fences.no_events || a->look.is_busy;
}

/* A look at a free while nothing is outstanding. Returns 1 if it has found nothing. */
static int is_clear(struct allocator *a, struct fence *fence)
{
    int passed = has_passed(a, fence->event, 0), late = 0;
    if (!passed && !a->life.forgotten)
        record_control(a);
    if (!passed && !a->life.forgotten && a->look.is_controlled) {
        late = has_passed(a, a->look.control, WAIT_NS);
        passed = !a->life.forgotten && has_passed(a, fence->event, 0);
    }
    if (passed || a->life.forgotten) {
        fence_drop(a, fence);
        return passed;
    }
    keep(a, fence);
    if (!late)
        return 0;
    a->look.is_late = 1;
    begin_anew(&a->domain->lane);
    if (has_passed(a, fence->event, LATE_NS) || a->life.forgotten)
        end_look(a);
    else
        note_evidence(a);
    return 0;
}

void look_at_free_due(struct allocator *a)
{
    struct lane *lane = &a->domain->lane;
    if (!is_off(a) && a->look.fence)
        go_on(a);
    uint64_t word = load(lane);
    if (a->life.forgotten || is_off(a) || (word & LANE_MODE) != LANE_NONE || look_is_allowed(lane))
        return;
    struct fence *fence = a->look.fence ? NULL : record(a, word);
    int clear = 0;
    if (fence) {
        a->look.is_busy = 1;
        clear = is_clear(a, fence);
        a->look.is_busy = 0;
    }
    if (a->life.forgotten || !clear)
        return;
    lane->clear++;
    note_calm(lane);
    look_allowance = (struct look_allowance){atomic_load(&lane->state.trust), frees_to_next(lane)};
}

/* A look at a lane: its event, and the control behind it on the lane's stream. */
static void begin_at_lane(struct allocator *a, const struct lane_stream *stream, uint64_t word)
{
    struct lane *lane = &a->domain->lane;
    uint64_t era = lane->era;
    int code;
    a->look.is_busy = 1;
    struct fence *fence = fence_record_alone(a, &code);
    if (fence && !a->life.forgotten) {
        void *event = a->look.control;
        allocator_call(a);
        code = lane->ops->record(stream, &event);
        allocator_return(a);
        a->look.control = event;
    }
    a->look.is_busy = 0;
    if (!fence)
        return;
    int same = lane->era == era && (load(lane) & LANE_MODE) == (word & LANE_MODE);
    if (code || a->life.forgotten || !same) {
        fence_drop(a, fence);
        return;
    }
    keep(a, fence);
    a->look.is_controlled = 1;
}

int look_at_lane(struct allocator *a, const struct lane_stream *stream)
{
    if (!a || is_off(a) || !allocator_visit(a))
        return 0;
    struct lane *lane = &a->domain->lane;
    int asks = a->look.fence && a->ops->now_ns() - a->look.asked_ns >= WAIT_NS;
    int begins = !a->look.fence && !lane->marks_to_look;
    if (!a->look.fence && lane->marks_to_look)
        lane->marks_to_look--;
    if (asks || begins)
        stats_begin(a->stats);
    if (asks)
        go_on(a);
    if (begins) {
        lane->marks_to_look =
            random_up_to(lane, ++lane->looks <= LOOKS ? MOST_MARKS_FIRST : MOST_MARKS);
        begin_at_lane(a, stream, load(lane));
    }
    if (asks || begins)
        stats_end(a->stats);
    allocator_visit_over(a);
    return asks || begins;
}

void look_around(struct domain *domain)
{
    struct lane *lane = &domain->lane;
    if (!lane->ops || !lane->ops->look_around || lane->past)
        return;
    enum lane_sight sight = lane->ops->look_around();
    if (sight == SIGHT_LOADING)
        return;
    domain_lock(domain);
    if (sight == SIGHT_MISSED)
        frees_wait(domain, 0);
    if (sight == SIGHT_PAST) {
        look_end_reuse(domain);
    } else if (!lane->past) {
        begin_anew(lane);
        atomic_store(&lane->state.open, 1);
    }
    domain_unlock(domain);
}
