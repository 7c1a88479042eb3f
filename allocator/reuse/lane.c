/* When is a freed block reusable at once? (R1)
 *
 * Almost every program submits its work to one stream. If all outstanding work was submitted to one
 * stream L, the lane, whatever touches a freed block next on L runs after whatever touched it
 * before: it may be handed out at once. Only work elsewhere could break that, so every submission
 * passes here. One word says how things stand: NONE (nothing is outstanding), SINGLE (all of it is
 * on the lane), MANY (frees need a fence: R0, fence.c). test/model explores this rule in full; the
 * names are the same there.
 *
 * 1. Marks. A block freed on the lane and reused by work elsewhere must not be touched before the
 *    lane is done with it. So a free sets `early` (something was reused) and `dirty` (it has no
 *    mark yet) in the word, and before the next submission anywhere is forwarded a mark is
 *    recorded: an event of the whole context. No work was submitted in between, so the mark stands
 *    for what was outstanding at the free and for nothing later. A mark of later work would make
 *    others wait for it: a kernel on L that spins until another stream feeds it would never end.
 * 2. Joins. The first submission elsewhere ends the lane: MANY is published, and from then on each
 *    stream waits for the mark once before its next work (`owed`).
 * 3. Back to a lane. When a fence is sealed in MANY, `used` is emptied and the generation of the
 *    word goes up, so that every thread's note is void and each stream is put on the books again.
 *    That fence is the candidate: when it has passed, all that is outstanding is on the streams
 *    used since: none -> NONE, one -> SINGLE.
 * 4. In flight. A submission whose thread was held up between looking at the word and the driver's
 *    call is on the books of its time, and may take effect after the candidate was recorded. So
 *    each thread shows the epoch in which its submission began (one store), and after the seal,
 *    before the record, all are looked at. If one began before the seal, this fence is no
 *    candidate; the next one, sealed when they have returned, is. One within which a tool submitted
 *    (the driver calls it back) was not seen to the end: when it returns it ends the lane.
 * 5. Captures. No context event may be recorded while one is active, so a lane is left, with its
 *    mark, before the driver begins one, and nothing is restored until all have ended.
 * 6. Streams that end. A handle may come back as another stream: its lane is left, and what it had
 *    outstanding counts as MANY until a fence passes.
 * 7. Several contexts. Marks and fences stand for one context. Work in another joins like any
 *    other; as long as the books hold work of two contexts, nothing is restored (`mixed`). One
 *    whose release is under way is neither marked nor joined until it is known whether it ends.
 * 8. Launches that may overtake what their stream had before them (programmatic ones) must not do
 *    so when they are the first on it since a free, or since the lane was left: whatever comes
 *    through lane_submit is put in order. What follows it on its stream may overtake it, but
 *    nothing before it, and ordinary work waits for all (measured: test/gpu/RECORD.md).
 * 9. Work that waits for a value (cuStreamWaitValue) is never a lane: a mark that stood for it
 *    could be joined by whoever is to write the value.
 * 10. What another process may touch (exported blocks) goes through R0, and an export waits for the
 *    mark.
 *
 * Known limit. Thread A frees a block while a kernel on L waits for what thread B will submit
 * elsewhere (it spins, or is a collective of two ranks): natively A is held in its free until then.
 * Here A goes on, and B's submission joins a mark that stands for the waiting kernel: neither ends.
 * Whether B holds memory that A freed (then it must wait) or not (then it must not) cannot be seen
 * from outside; free_mode:fence never joins.
 */
#include "allocator/reuse/lane.h"

#include "allocator/base/policy.h"
#include "allocator/state/domain.h"
#include "allocator/reuse/context_event.h"
#include "stats/os/pause.h"
#include "allocator/state/enter.h"

#define UNKNOWN_CONTEXT 1 /* no handle has this value */

static uint64_t load(const struct lane *lane)
{
    return atomic_load_explicit(&lane->state.word, memory_order_seq_cst);
}

/* Changes the word from `from`, unless a free changed it meanwhile. */
static int change(struct lane *lane, uint64_t from, uint64_t to)
{
    return atomic_compare_exchange_strong(&lane->state.word, &from, to);
}

/* The books begun at the last seal are no good for going back to a lane. */
void lane_spoil(struct lane *lane)
{
    lane->candidate = NULL;
    lane->counting = 0;
}

static void use(struct lane *lane, uint64_t key, uint64_t context)
{
    if (!lane->context)
        lane->context = context;
    else if (lane->context != context)
        lane->mixed = 1;
    if (lane->used && lane->used_key != key)
        lane->used = 2;
    else if (!lane->used)
        lane->used = 1;
    lane->used_key = key;
}

static struct allocator *allocator_of(const struct domain *domain, uint64_t context)
{
    struct allocator *a = domain->first;
    while (a && a->context != context)
        a = a->next;
    return a;
}

/* This thread is in a driver's call about a mark, and perhaps a tool that the driver calls back.
 * What that frees meanwhile is not reusable at once, and leads to no lane: else each such call
 * would bring on the next. */
static _Thread_local int within;

static struct thread_cache *without_cache(void)
{
    struct thread_cache *own = thread_cache_own;
    thread_cache_own = NULL;
    within++;
    return own;
}

static void with_cache(struct thread_cache *own)
{
    within--;
    if (own)
        thread_cache_own = own;
}

/* Records the mark of a dirty lane; the lock is dropped meanwhile. `dirty` goes first: a free from
 * here on is not covered. It is a new generation: whoever shares the lane comes through
 * lane_submit once more, and there may not overtake. */
static void mark(struct domain *domain, uint64_t word)
{
    struct lane *lane = &domain->lane;
    struct allocator *a = allocator_of(domain, lane->context);
    uint64_t own = lane_next(word, LANE_SINGLE) | LANE_EARLY | LANE_MARKING;
    struct fence *fence = NULL;
    stats_begin(a->stats);
    int visit = allocator_visit_soon(a), begun = change(lane, word, own);
    if (begun && lane->mark) { /* now: so it is the same event that is recorded again */
        fence_drop(lane->marked, lane->mark);
        lane->mark = NULL;
    }
    if (visit && begun) {
        struct thread_cache *cache = without_cache();
        fence = fence_mark(a);
        with_cache(cache);
        stats_count(a->stats, COUNTER_num_lane_marks, 1);
    }
    if (visit)
        allocator_visit_over(a);
    stats_end(a->stats);
    if (!begun)
        return;
    if (a->life.forgotten)
        return; /* and the lane with it */
    if ((load(lane) ^ own) & ~(uint64_t)LANE_DIRTY) {
        /* Called back within, this thread has marked it anew. */
        if (fence)
            fence_drop(a, fence);
        return;
    }
    lane->mark = fence;
    lane->marked = a;
    atomic_fetch_and(&lane->state.word, ~(uint64_t)LANE_MARKING);
}

/* A lane's end; it is not dirty. Returns 0 if a free made it so meanwhile. */
static int leave(struct domain *domain, uint64_t word)
{
    struct lane *lane = &domain->lane;
    if (!change(lane, word, lane_next(word, LANE_MANY)))
        return 0;
    lane->owed = word & LANE_EARLY ? lane->mark : NULL;
    lane->unmarked = word & LANE_EARLY && !lane->mark;
    lane->era++;
    lane->used = 2;
    lane_spoil(lane);
    struct allocator *a = allocator_of(domain, lane->context);
    if (a) {
        stats_begin(a->stats);
        stats_count(a->stats, COUNTER_num_lane_leaves, 1);
        stats_end(a->stats);
    }
    return 1;
}

/* Nobody records a mark now, and the lane, if there is one, has its mark: returns the word. The
 * lock is dropped meanwhile. A mark that this thread is in itself is not waited for: it is recorded
 * anew. */
uint64_t lane_settled(struct domain *domain)
{
    for (int looks = 0;; looks++) {
        uint64_t word = load(&domain->lane);
        if (word & LANE_MARKING && !within) {
            domain_unlock(domain);
            pause_look(looks);
            domain_lock(domain);
        } else if (word & (LANE_DIRTY | LANE_MARKING)) {
            mark(domain, word);
        } else {
            return word;
        }
    }
}

/* Until the lane, if there is one, is left. */
void lane_leave_for_good(struct domain *domain)
{
    uint64_t word;
    while (((word = lane_settled(domain)) & LANE_MODE) == LANE_SINGLE && !leave(domain, word))
        ;
}

/* A driver's call about the owed mark, the lock dropped: `stream` joins it, or (NULL) the host
 * waits for it. If a join cannot be, the host waits too. */
static void await(struct domain *domain, struct fence *fence, const struct lane_stream *stream)
{
    struct lane *lane = &domain->lane;
    struct allocator *a = lane->marked;
    stats_begin(a->stats);
    fence->users++;
    if (allocator_visit_soon(a)) {
        struct thread_cache *cache = without_cache();
        allocator_call(a);
        if (!stream || lane->ops->join(stream, fence->event))
            a->ops->fence_wait(a->device, fence->event, DEVICE_FOREVER);
        allocator_return(a);
        with_cache(cache);
        stats_count(a->stats, COUNTER_num_lane_joins, stream != NULL);
        allocator_visit_over(a);
    }
    fence->users--;
    if (fence->state == FENCE_GONE)
        fence_drop(a, fence);
    stats_end(a->stats);
}

/* What must be asked of the driver before a submission is put on the books. */
struct asked {
    uint64_t context;
    uint64_t joined;
};

/* One step towards it. Returns 1 when it is on the books, under the word that stands then. */
static int put(struct domain *domain, const struct lane_stream *stream, struct asked *asked)
{
    struct lane *lane = &domain->lane;
    uint64_t word = lane_settled(domain), key = stream->key;
    int mode = (int)(word & LANE_MODE);
    if (mode == LANE_SINGLE && key == lane->key)
        return 1;
    if (!asked->context) {
        domain_unlock(domain);
        asked->context = lane->ops->context(stream);
        domain_lock(domain);
        if (!asked->context)
            asked->context = UNKNOWN_CONTEXT;
        return 0;
    }
    if (mode == LANE_SINGLE) {
        leave(domain, word);
        return 0;
    }
    if (mode == LANE_NONE) {
        lane->context = 0;
        lane->used = 0;
        lane->key = key;
        if (!change(lane, word, lane_next(word, LANE_SINGLE)))
            return 0;
    } else if (lane->owed && asked->joined != lane->era) {
        asked->joined = lane->era;
        await(domain, lane->owed, stream);
        return 0;
    }
    use(lane, key, asked->context);
    return 1;
}

int lane_submit(struct domain *domain, struct lane_thread *self, const struct lane_stream *stream)
{
    struct lane *lane = &domain->lane;
    struct asked asked = {0};
    domain_lock(domain);
    int maybe_captured = lane->capturing != 0;
    if (maybe_captured) {
        domain_unlock(domain);
        if (lane->ops->is_capturing(stream))
            return 0; /* no work yet: launching the graph is */
        domain_lock(domain);
    }
    while (!put(domain, stream, &asked))
        ;
    if (!self)
        lane->mixed = 1; /* a submission that nobody sees in flight */
    if (self) {
        unsigned note = lane_note(stream->name);
        self->word[note] = load(lane) & ~(uint64_t)(LANE_DIRTY | LANE_MARKING);
        self->name[note] = stream->name;
        self->in_order[note] = 1;
    }
    domain_unlock(domain);
    return 1;
}

/* Is some submission in flight that began before the books of `used` did? */
static int is_outrun(struct lane *lane)
{
    if (lane->ops->barrier())
        lane->mixed = 1; /* this system cannot tell: never back to a lane */
    for (struct lane_thread *thread = lane->threads; thread; thread = thread->next) {
        uint64_t epoch = atomic_load_explicit(&thread->epoch, memory_order_acquire);
        if (epoch && epoch < lane->counting)
            return 1;
    }
    return 0;
}

int lane_free_alone(struct allocator *a)
{
    struct lane *lane = &a->domain->lane;
    if (!lane->ops)
        return 0;
    for (;;) {
        uint64_t word = load(lane);
        int mode = (int)(word & LANE_MODE);
        if (mode == LANE_NONE)
            return 1;
        if (mode == LANE_MANY || lane->context != a->context)
            return 0;
        if ((word & LANE_EARLY && word & LANE_DIRTY) ||
            change(lane, word, word | LANE_EARLY | LANE_DIRTY))
            return 1;
    }
}

int lane_free(struct allocator *a)
{
    return within ? 0 : lane_free_alone(a);
}

void lane_sealed(struct allocator *a, const struct fence *fence)
{
    struct lane *lane = &a->domain->lane;
    uint64_t word = load(lane);
    if (within)
        return;
    if ((word & LANE_MODE) != LANE_MANY || lane->candidate || lane->capturing || lane->mixed ||
        (lane->context && lane->context != a->context) || ++lane->seals < lane->patience)
        return;
    if (!lane->counting) {
        lane->used = 0;
        lane->used_key = 0;
        /* The word first: who reads the new epoch reads no older word. */
        atomic_store(&lane->state.word, lane_next(word, LANE_MANY));
        lane->counting = atomic_fetch_add(&lane->state.epoch, 1) + 1;
    }
    lane->seals = 0;
    if (!is_outrun(lane) && !lane->mixed)
        lane->candidate = fence;
}

void lane_fence_ended(struct allocator *a, const struct fence *fence, int passed)
{
    struct lane *lane = &a->domain->lane;
    if (lane->candidate != fence)
        return;
    lane_spoil(lane);
    if (!passed)
        return;
    lane->owed = NULL; /* recorded before the candidate */
    lane->unmarked = 0;
    uint64_t word = load(lane);
    if (lane->mixed || lane->used > 1) {
        lane->patience =
            lane->patience < policy.lane_patience ? 2 * lane->patience + 1 : policy.lane_patience;
        return;
    }
    lane->patience = 0;
    lane->key = lane->used_key;
    atomic_store(&lane->state.word, lane_next(word, lane->used ? LANE_SINGLE : LANE_NONE));
}

void lane_finish(struct domain *domain)
{
    struct lane *lane = &domain->lane;
    if (!lane->ops)
        return;
    domain_lock(domain);
    uint64_t word = lane_settled(domain);
    struct fence *fence =
        (word & LANE_MODE) == LANE_SINGLE && word & LANE_EARLY ? lane->mark : lane->owed;
    if (fence)
        await(domain, fence, NULL);
    domain_unlock(domain);
}
