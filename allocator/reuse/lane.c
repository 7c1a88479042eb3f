/* When is a freed block reusable at once? (R1)
 *
 * Almost every program submits its work to one stream. If all outstanding work was submitted to one
 * stream L, that stream is the lane. Later work on L runs after earlier work on L. So a freed block
 * may be handed out at once. Only work on another stream could break this, so every submission
 * passes here.
 *
 * One atomic word holds the mode: NONE (no work is outstanding), SINGLE (all of it is on the lane)
 * or MANY (frees need a fence: R0, fence.c). test/model explores this rule in full, and uses the
 * same names.
 *
 * 1. Marks. Work on another stream must not touch a block freed on the lane until the lane has
 *    finished with it. So a free sets two bits of the word: `early` (a block was reused) and
 *    `dirty` (it has no mark yet). Before the next submission to any stream is forwarded, a mark is
 *    recorded: an event of the whole context. No work was submitted between the free and the mark.
 *    So the mark stands for the work outstanding at the free, and for nothing later. A mark of
 *    later work would make other streams wait for that work. A kernel on L that spins until another
 *    stream feeds it would then never end.
 * 2. Joins. The first submission to another stream ends the lane: the word becomes MANY. From then
 *    on each stream waits for the mark once, before its next work (`owed`).
 * 3. Back to a lane. When a fence is sealed in MANY, `used` is emptied and the generation in the
 *    word rises. That voids the note of every thread, so each stream is registered again. This
 *    fence is the candidate. When it has passed, all outstanding work is on the streams used since:
 *    none -> NONE, one -> SINGLE.
 * 4. In flight. A thread may be held up between its look at the word and the driver's call. Its
 *    submission is registered in the old generation, but may take effect after the candidate was
 *    recorded. So each thread publishes the epoch in which its submission began (one store). After
 *    the seal, and before the record, all these epochs are examined. If a submission began before
 *    the seal, this fence is no candidate. The next fence sealed after those submissions have
 *    returned is one. A tool that the driver calls back may submit within a submission. Such a
 *    submission was not visible to its end, so it ends the lane when it returns.
 * 5. Captures. No context event may be recorded during a capture. So the lane is left, with its
 *    mark, before the driver begins one. No lane returns until all captures have ended.
 * 6. Streams that end. The handle may come back as another stream. So its lane is left, and its
 *    outstanding work counts as MANY until a fence passes.
 * 7. Several contexts. Marks and fences stand for one context. Work in another context joins the
 *    mark like any other work. While work of two contexts is registered, no lane returns (`mixed`).
 *    A context whose release is under way is neither marked nor joined until it is known whether it
 *    ends.
 * 8. Programmatic launches may overtake earlier work of their stream. They must not, if they are
 *    the first on it since a free, or since the lane was left. So whatever passes lane_submit is
 *    put in order. Later work on its stream may overtake it, but nothing before it. Ordinary work
 *    waits for everything before it (measured: test/gpu/RECORD.md).
 * 9. Work that waits for a value (cuStreamWaitValue) is never a lane. Otherwise a mark would stand
 *    for it, and the stream that is to write the value could join that mark.
 * 10. Blocks that another process may touch (exported) go through R0, and an export waits for the
 *     mark.
 *
 * Known limit. Thread A frees a block while a kernel on L waits for work that thread B will submit
 * to another stream. (The kernel spins, or is a collective of two ranks.) CUDA holds A in its free
 * until then. Here A goes on, and B's submission joins a mark that stands for the waiting kernel:
 * neither ends. If B uses memory that A freed, it must wait; if not, it must not. Nothing outside
 * tells which, and free_mode:fence never joins. */
#include "allocator/reuse/lane_free.h"

#include "allocator/base/policy.h"
#include "allocator/state/domain.h"
#include "allocator/reuse/context_event.h"
#include "allocator/reuse/look.h"
#include "stats/os/pause.h"
#include "allocator/state/enter.h"

#define UNKNOWN_CONTEXT 1 /* no handle has this value */

static uint64_t load(const struct lane *lane)
{
    return atomic_load_explicit(&lane->state.word, memory_order_seq_cst);
}

/* Changes the word from `from`. Returns 0 if a free has changed it meanwhile. */
static int change(struct lane *lane, uint64_t from, uint64_t to)
{
    return atomic_compare_exchange_strong(&lane->state.word, &from, to);
}

/* Discards the candidate and the streams counted since the last seal: they lead back to no lane. */
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

/* This thread is in a driver's call about a mark, or in a tool that the driver calls back there. A
 * block freed meanwhile is not reusable at once, and leads to no lane. Otherwise each such call
 * would cause the next one. */
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

/* Records the mark of a dirty lane, and drops the lock meanwhile. `dirty` is cleared first: the
 * mark does not cover a later free. The generation rises, so each thread on the lane passes
 * lane_submit once more, and may not overtake there. */
static void mark(struct domain *domain, uint64_t word)
{
    struct lane *lane = &domain->lane;
    struct allocator *a = allocator_of(domain, lane->context);
    uint64_t own = lane_next(word, LANE_SINGLE) | LANE_EARLY | LANE_MARKING;
    struct fence *fence = NULL;
    stats_begin(a->stats);
    int visit = allocator_visit_soon(a), begun = change(lane, word, own);
    if (begun && lane->mark) { /* dropped first, so that the same event is recorded again */
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
        return; /* the lane is forgotten with it */
    if ((load(lane) ^ own) & ~(uint64_t)LANE_DIRTY) {
        /* A tool called back within the call made this thread record another mark. */
        if (fence)
            fence_drop(a, fence);
        return;
    }
    lane->mark = fence;
    lane->marked = a;
    atomic_fetch_and(&lane->state.word, ~(uint64_t)LANE_MARKING);
}

/* Ends a lane that is not dirty. Returns 0 if a free has made it dirty meanwhile. */
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

/* Returns the word once no thread records a mark, and the lane, if there is one, has its mark.
 * Drops the lock meanwhile. A mark that this thread itself is recording is not waited for: it
 * records another one. */
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

/* Leaves the lane, if there is one. */
void lane_leave_for_good(struct domain *domain)
{
    uint64_t word;
    while (((word = lane_settled(domain)) & LANE_MODE) == LANE_SINGLE && !leave(domain, word))
        ;
}

/* Calls the driver about the owed mark, without the lock: `stream` joins it, or the host waits
 * (NULL). The host also waits if the join fails. */
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

/* What one submission has asked the driver so far: its context (0: not yet), and the era whose mark
 * it has joined. */
struct asked {
    uint64_t context;
    uint64_t joined;
};

/* Takes one step to register a submission. Returns 1 when it is registered, under the word as it is
 * then. */
static int put(struct domain *domain, const struct lane_stream *stream, struct asked *asked)
{
    struct lane *lane = &domain->lane;
    uint64_t word = lane_settled(domain), key = stream->key;
    int mode = (int)(word & LANE_MODE);
    if (mode == LANE_SINGLE && key == lane->key)
        return !look_at_lane(allocator_of(domain, lane->context), stream);
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
            return 0; /* no work yet: a launch of the graph is */
        domain_lock(domain);
    }
    while (!put(domain, stream, &asked))
        ;
    if (!self)
        lane->mixed = lane->blind = 1; /* nothing shows when this submission is in flight */
    if (self) {
        unsigned note = lane_note(stream->name);
        self->word[note] = load(lane) & ~(uint64_t)(LANE_DIRTY | LANE_MARKING);
        self->name[note] = stream->name;
        self->in_order[note] = 1;
    }
    domain_unlock(domain);
    return 1;
}

/* Is a submission in flight that began before `used` was emptied? */
static int is_outrun(struct lane *lane)
{
    if (lane->ops->barrier())
        lane->mixed = 1; /* no barrier on this system: no lane ever returns */
    for (struct lane_thread *thread = lane->threads; thread; thread = thread->next) {
        uint64_t epoch = atomic_load_explicit(&thread->epoch, memory_order_acquire);
        if (epoch && epoch < lane->counting)
            return 1;
    }
    return 0;
}

DIRECT int lane_free(struct allocator *a)
{
    return within ? 0 : lane_free_alone(a);
}

int lane_is_idle(struct domain *domain)
{
    const struct lane *lane = &domain->lane;
    return !within && atomic_load_explicit(&lane->state.open, memory_order_relaxed) &&
           (load(lane) & LANE_MODE) == LANE_NONE && look_allows(lane);
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
        /* The word changes first: a thread that reads the new epoch reads no older word. */
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
