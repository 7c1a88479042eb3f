/* model_cache [PLANT]: the way into a thread cache without the lock, explored in full: two threads
 * with a cache each, and one that stops them, holding the lock (allocator/thread_cache/own.c, 1 and 2).
 * All three free the same block at any time, for ever, as no right program does; the program takes
 * it again wherever it lies. Whoever is in its cache may also make it spare, or take it from there,
 * while it holds the list (transfer.h). Stores of `sequence` wait in their thread's store buffer, in
 * order, until anything makes them seen; a look at `wanted` waits for nothing.
 *
 * Exit 0: it holds, or the planted bug was found. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { OWNERS = 2 };
enum plant { AS_IT_IS, NO_BARRIER, LOOK_FIRST, NO_WAIT, CLAIM_BY_STORE, HOLD_BY_STORE, PLANTS };
static const char *const plants[PLANTS] = {"as_it_is", "no_barrier",     "look_first",
                                           "no_wait",  "claim_by_store", "hold_by_store"};
static enum plant plant;

/* Of an owner: outside; its store is made and the look comes; inside; it saw the block free to
 * take; (LOOK_FIRST) it has looked and the store comes; it holds the list and found nothing, or the
 * block, in it; (HOLD_BY_STORE) it saw that nobody holds it, and either. */
enum owner_at {
    OUTSIDE,
    LOOKS,
    INSIDE,
    SAW_EASY,
    STORES,
    HOLDS_EMPTY,
    HOLDS_SPARE,
    SAW_EMPTY,
    SAW_SPARE,
    PLACES
};
enum stopper_at { IDLE, WANTS, WAITS, STOPPED };
enum claim { NOBODY, EASY, CACHED };

struct state {
    uint8_t at[OWNERS], odd[OWNERS], unseen[OWNERS]; /* stores of `sequence` not yet seen: 0 to 2 */
    uint8_t stopper, wanted, claim, cached_in;       /* bit per owner */
    uint8_t held, spare;
};

/* A number below STATES for each. */
enum { STATES = PLACES * PLACES * 2 * 2 * 3 * 3 * 4 * 2 * 3 * 4 * 2 * 2 };
static unsigned number_of(const struct state *s)
{
    unsigned n = 0;
    for (int o = 0; o < OWNERS; o++)
        n = ((n * PLACES + s->at[o]) * 2 + s->odd[o]) * 3 + s->unseen[o];
    n = (((n * 4 + s->stopper) * 2 + s->wanted) * 3 + s->claim) * 4 + s->cached_in;
    return (n * 2 + s->held) * 2 + s->spare;
}

static struct state queue[STATES];
static uint8_t seen[STATES];
static unsigned first, last;
static const char *broken;

static void check(const struct state *s)
{
    for (int o = 0; o < OWNERS; o++)
        if (s->stopper == STOPPED && s->at[o] != OUTSIDE && s->at[o] != LOOKS)
            broken = "two in one cache";
    if (s->cached_in == 3 || (s->cached_in && s->spare))
        broken = "a block in two places";
    if ((s->cached_in || s->spare) && s->claim != CACHED)
        broken = "a block of a cache that others may take";
}

static void reach(struct state s)
{
    unsigned n = number_of(&s);
    if (seen[n])
        return;
    seen[n] = 1;
    queue[last++] = s;
    check(&s);
}

/* A store of `sequence`; the processor may keep two back. */
static void store(struct state s, int o, enum owner_at at)
{
    if (s.unseen[o] == 2)
        return; /* one must be seen first: that step is there, too */
    s.odd[o] ^= 1;
    s.unseen[o]++;
    s.at[o] = (uint8_t)at;
    reach(s);
}

static int is_seen_odd(const struct state *s, int o)
{
    return (s->odd[o] ^ s->unseen[o]) & 1;
}

static struct state moved(struct state s, int o, enum owner_at at)
{
    s.at[o] = (uint8_t)at;
    return s;
}

/* Frees the block into its cache, or takes it from there. */
static void inside(struct state s, int o)
{
    if (s.cached_in & 1 << o) {
        s.cached_in &= (uint8_t) ~(1 << o);
        s.claim = EASY;
        reach(s);
    } else if (s.claim == EASY && plant == CLAIM_BY_STORE) {
        reach(moved(s, o, SAW_EASY));
    } else if (s.claim == EASY) {
        s.claim = CACHED;
        s.cached_in |= (uint8_t)(1 << o);
        s.unseen[o] = 0; /* an atomic change: all before it is seen */
        reach(s);
    }
}

/* Takes hold of the list. */
static void hold(struct state s, int o)
{
    int spare = s.spare;
    if (s.held || !(spare || s.cached_in & 1 << o))
        return;
    if (plant == HOLD_BY_STORE) {
        reach(moved(s, o, spare ? SAW_SPARE : SAW_EMPTY));
        return;
    }
    s.held = 1;
    s.unseen[o] = 0; /* an atomic change */
    reach(moved(s, o, spare ? HOLDS_SPARE : HOLDS_EMPTY));
}

/* And puts it back: with the block in it, or without. */
static void put_back(struct state s, int o, int spare)
{
    s.held = 0;
    s.spare = (uint8_t)spare;
    s.cached_in &= (uint8_t) ~(1 << o);
    s.cached_in |= (uint8_t)(!spare << o);
    reach(moved(s, o, INSIDE));
}

static void owner_steps(struct state s, int o)
{
    if (s.unseen[o]) {
        struct state next = s;
        next.unseen[o]--;
        reach(next);
    }
    switch (s.at[o]) {
    case OUTSIDE:
        if (plant == LOOK_FIRST && !s.wanted)
            reach(moved(s, o, STORES));
        else if (plant != LOOK_FIRST)
            store(s, o, LOOKS);
        break;
    case STORES:
        store(s, o, INSIDE);
        break;
    case LOOKS:
        if (s.wanted)
            store(s, o, OUTSIDE);
        else
            reach(moved(s, o, INSIDE));
        break;
    case SAW_EASY:
        s.claim = CACHED;
        s.cached_in |= (uint8_t)(1 << o);
        reach(moved(s, o, INSIDE));
        break;
    case SAW_EMPTY:
    case SAW_SPARE:
        s.held = 1;
        reach(moved(s, o, s.at[o] == SAW_SPARE ? HOLDS_SPARE : HOLDS_EMPTY));
        break;
    case HOLDS_EMPTY:
    case HOLDS_SPARE:
        put_back(s, o, s.at[o] == HOLDS_EMPTY);
        break;
    default:
        inside(s, o);
        hold(s, o);
        store(s, o, OUTSIDE);
    }
}

static void stopper_steps(struct state s)
{
    switch (s.stopper) {
    case IDLE:
        if (s.claim != CACHED) { /* the lock's holder frees the block, or hands it out */
            struct state next = s;
            next.claim = s.claim == EASY ? NOBODY : EASY;
            reach(next);
        }
        s.wanted = 1;
        s.stopper = WANTS;
        reach(s);
        break;
    case WANTS:
        if (plant != NO_BARRIER)
            memset(s.unseen, 0, sizeof s.unseen);
        s.stopper = WAITS;
        reach(s);
        break;
    case WAITS:
        if (plant != NO_WAIT && (is_seen_odd(&s, 0) || is_seen_odd(&s, 1)))
            break;
        s.stopper = STOPPED;
        reach(s);
        break;
    default: /* what lies in caches goes to the pool */
        s.claim = s.cached_in || s.spare ? NOBODY : s.claim;
        s.cached_in = s.spare = s.wanted = 0;
        s.stopper = IDLE;
        reach(s);
    }
}

int main(int count, char **argument)
{
    for (int i = 0; count == 2 && i < PLANTS; i++)
        if (!strcmp(argument[1], plants[i]))
            plant = (enum plant)i;
    reach((struct state){.claim = EASY});
    while (first < last && !broken) {
        struct state s = queue[first++];
        for (int o = 0; o < OWNERS; o++)
            owner_steps(s, o);
        stopper_steps(s);
    }
    printf("%s: %u states: %s\n", plants[plant], last, broken ? broken : "holds");
    return !broken == (plant != AS_IT_IS);
}
