/* What begins and ends beside the work itself: threads, captures, streams, contexts. The rule is at
 * the head of lane.c. */
#include "allocator/state/domain.h"
#include "allocator/reuse/context_event.h"
#include "allocator/reuse/lane.h"
#include "allocator/reuse/look.h"

static uint64_t load(const struct lane *lane)
{
    return atomic_load(&lane->state.word);
}

void lane_forget(struct allocator *a)
{
    struct lane *lane = &a->domain->lane;
    if (!lane->ops)
        return;
    if (!a->look.is_busy) /* else the thread that looks forgets it */
        look_forget(a);
    if (lane->marked == a) {
        if (lane->mark)
            fence_drop(a, lane->mark);
        lane->mark = lane->owed = NULL;
    }
    if (lane->context != a->context) {
        /* The handles of its streams may come back: those streams have joined nothing. */
        if ((load(lane) & LANE_MODE) == LANE_MANY)
            atomic_store(&lane->state.word, lane_next(load(lane), LANE_MANY));
        return;
    }
    lane_spoil(lane);
    lane->used = 2;
    if (!lane->mixed) {
        lane->used = 0;
        lane->context = 0;
    }
    int alone = !lane->mixed && !lane->capturing;
    atomic_store(&lane->state.word, lane_next(load(lane), alone ? LANE_NONE : LANE_MANY));
}

void lane_start(struct domain *domain, const struct lane_ops *ops)
{
    /* A forked child has copies of these items: a submitting thread reads its own item there before
     * it asks anything. */
    domain->lane.thread_slab.item_bytes = sizeof(struct lane_thread);
    atomic_store(&domain->lane.state.epoch, 1);
    atomic_store(&domain->lane.state.word, lane_next(0, LANE_NONE));
    domain->lane.ops = ops;
    atomic_store(&domain->lane.state.open, 1);
}

void lane_names_from(struct domain *domain, uint64_t least)
{
    domain_lock(domain);
    domain->lane.least_open = least;
    if (!domain->lane.closed)
        atomic_store(&domain->lane.state.least_name, least);
    domain_unlock(domain);
}

int lane_close(struct domain *domain)
{
    struct lane *lane = &domain->lane;
    domain_lock(domain);
    int can = lane->ops && !lane->blind;
    if (can) {
        lane->closed = 1;
        atomic_store(&lane->state.least_name, UINT64_MAX);
    }
    domain_unlock(domain);
    return can ? 0 : -1;
}

int lane_is_empty(struct domain *domain)
{
    struct lane *lane = &domain->lane;
    domain_lock(domain);
    int empty = lane->blind || lane->ops->barrier() ? -1 : 1;
    for (struct lane_thread *thread = lane->threads; thread && empty == 1; thread = thread->next)
        empty = !atomic_load_explicit(&thread->epoch, memory_order_acquire);
    for (const struct allocator *a = domain->first; a && empty == 1; a = a->next)
        empty = !a->look.is_busy; /* its event would wait for what comes after the gate is closed */
    domain_unlock(domain);
    return empty;
}

void lane_open(struct domain *domain)
{
    domain_lock(domain);
    domain->lane.closed = 0;
    atomic_store(&domain->lane.state.least_name, domain->lane.least_open);
    domain_unlock(domain);
}

struct lane_thread *lane_thread_begin(struct domain *domain)
{
    domain_lock(domain);
    struct lane_thread *self = slab_take(&domain->lane.thread_slab);
    if (self) {
        self->state = &domain->lane.state;
        for (unsigned note = 0; note < LANE_NOTES; note++)
            self->word[note] = LANE_NONE; /* a word that no generation has */
        self->next = domain->lane.threads;
        if (self->next)
            self->next->previous = self;
        domain->lane.threads = self;
    }
    domain_unlock(domain);
    return self;
}

void lane_thread_end(struct domain *domain, struct lane_thread *self)
{
    domain_lock(domain);
    *(self->previous ? &self->previous->next : &domain->lane.threads) = self->next;
    if (self->next)
        self->next->previous = self->previous;
    slab_give(&domain->lane.thread_slab, self);
    domain_unlock(domain);
}

/* Leaves NONE: there may be work that is not registered. */
static void assume_work(struct lane *lane)
{
    if ((load(lane) & LANE_MODE) == LANE_NONE) {
        lane->context = 0;
        lane->used = 0;
        atomic_store(&lane->state.word, lane_next(load(lane), LANE_MANY));
    }
}

void lane_capture_begins(struct domain *domain)
{
    struct lane *lane = &domain->lane;
    if (!lane->ops)
        return;
    domain_lock(domain);
    lane->capturing++; /* no lane returns from here on */
    lane_leave_for_good(domain);
    assume_work(lane);
    lane_spoil(lane);
    domain_unlock(domain);
}

void lane_capture_ended(struct domain *domain)
{
    if (!domain->lane.ops)
        return;
    domain_lock(domain);
    domain->lane.capturing--;
    domain_unlock(domain);
}

int lane_is_over(struct allocator *a, uint64_t timeout_ns)
{
    const struct lane *lane = &a->domain->lane;
    struct fence *owed = lane->owed;
    if ((load(lane) & LANE_MODE) != LANE_MANY || lane->unmarked)
        return 0;
    if (!owed || lane->marked != a)
        return 1;
    int over = fence_has_passed(a, owed, timeout_ns);
    if (owed->state == FENCE_GONE)
        fence_drop(a, owed);
    return over;
}

/* Counts all outstanding work as work of several streams, until a fence sealed from here on has
 * passed. */
static void count_as_many(struct lane *lane)
{
    uint64_t word = load(lane);
    if ((word & LANE_MODE) != LANE_MANY)
        return;
    lane->used = 2;
    lane_spoil(lane);
    atomic_store(&lane->state.word, lane_next(word, LANE_MANY));
}

void lane_outrun(struct domain *domain)
{
    if (!domain->lane.ops)
        return;
    domain_lock(domain);
    lane_leave_for_good(domain);
    assume_work(&domain->lane);
    count_as_many(&domain->lane);
    domain_unlock(domain);
}

void lane_watch(struct domain *domain)
{
    atomic_store(&domain->lane.state.open, 0);
}

void lane_work_is_past(struct domain *domain)
{
    domain_lock(domain);
    look_end_reuse(domain);
    domain_unlock(domain);
}

void lane_waits(struct domain *domain)
{
    if (!domain->lane.ops)
        return;
    domain_lock(domain);
    lane_leave_for_good(domain);
    count_as_many(&domain->lane);
    domain_unlock(domain);
}

void lane_stream_ends(struct domain *domain, uint64_t key)
{
    struct lane *lane = &domain->lane;
    if (!lane->ops)
        return;
    domain_lock(domain);
    uint64_t word = lane_settled(domain);
    if ((word & LANE_MODE) == LANE_SINGLE && lane->key == key)
        lane_leave_for_good(domain);
    count_as_many(lane);
    domain_unlock(domain);
}
