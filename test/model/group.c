/* model_group [PLANT]: the books of a group, explored in full (stats/page/group.c). Three processes
 * claim one unit each time, of two that the group may have, and give it back, for ever. Any may be
 * killed between any two steps: its memory is free then. Others strike its line out, or a new process
 * takes it. A step is one access to the books, or one call of the driver.
 *
 * It holds that the driver never gives the living more than the limit, and that a line says what its
 * process has, and no claim, when it is at rest. Exit 0: it holds, or the planted bug was found. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 3, LIMIT = 2 };
enum plant {
    AS_IT_IS,
    LOOK_FIRST,
    PENDING_IGNORED,
    HELD_READ_FIRST,
    PENDING_CLEARED_FIRST,
    GIVEN_EARLY,
    LIVING_BURIED,
    PENDING_LEFT,
    PLANTS
};
static const char *const plants[PLANTS] = {
    "as_it_is",    "look_first",    "pending_ignored", "held_read_first", "pending_cleared_first",
    "given_early", "living_buried", "pending_left"};
static enum plant plant;

/* RESTS; has noted the claim; reads pending and held of each line in turn; decides; has written the
 * first of two words, and the second; asks the driver. A give: the driver has it, then the books. */
enum at { RESTS, READS, DECIDES = READS + 2 * N, WRITES, OWNS, GIVES, PLACES };

struct process {
    uint8_t alive, at, has;        /* has: units of the driver's */
    uint8_t own;                   /* what it knows that it holds */
    uint8_t held, pending;         /* its line */
    uint8_t saw_held, saw_pending; /* sums of the others */
};
struct state {
    struct process p[N];
};

#define ROOM (1u << 24)
static struct state *table;
static uint8_t *taken;
static uint32_t *queue;
static unsigned first, last;
static const char *broken;

static void reach(const struct state *s)
{
    const uint8_t *bytes = (const uint8_t *)s;
    uint64_t h = 1469598103934665603u;
    unsigned has = 0;
    for (size_t i = 0; i < sizeof *s; i++)
        h = (h ^ bytes[i]) * 1099511628211u;
    unsigned at = (unsigned)(h ^ h >> 32) % ROOM;
    for (; taken[at]; at = (at + 1) % ROOM)
        if (!memcmp(&table[at], s, sizeof *s))
            return;
    if (last >= ROOM / 2) {
        fprintf(stderr, "too many states\n");
        exit(2);
    }
    taken[at] = 1;
    table[at] = *s;
    queue[last++] = at;
    for (int i = 0; i < N; i++) {
        const struct process *p = &s->p[i];
        has += p->has;
        if (p->alive && p->at == RESTS && (p->pending || p->held != p->has))
            broken = "a line that is wrong at rest";
    }
    if (has > LIMIT)
        broken = "more than the limit";
}

/* The claim is over; what was read counts no more. */
static void rest(struct state s, int i)
{
    s.p[i].saw_held = s.p[i].saw_pending = 0;
    s.p[i].at = RESTS;
    reach(&s);
}

/* In the lines in turn: pending first, then held. */
static void look(struct state s, int i)
{
    struct process *p = &s.p[i];
    int step = p->at - READS, of = step / 2, held = step % 2;
    if (of != i && held != (plant == HELD_READ_FIRST))
        p->saw_held += s.p[of].held;
    else if (of != i)
        p->saw_pending += s.p[of].pending;
    p->at++;
    reach(&s);
}

static void decide(struct state s, int i)
{
    struct process *p = &s.p[i];
    unsigned others = p->saw_held + (plant == PENDING_IGNORED ? 0 : p->saw_pending);
    if (p->own + others + 1 <= LIMIT) {
        if (plant == LOOK_FIRST)
            p->pending = 1;
        if (plant == PENDING_CLEARED_FIRST)
            p->pending = 0;
        else
            p->held = ++p->own;
        p->at = WRITES;
        reach(&s);
        return;
    }
    p->pending = plant == PENDING_LEFT;
    rest(s, i);
}

static void step(struct state s, int i)
{
    struct process *p = &s.p[i];
    switch (p->at) {
    case RESTS:
        if (p->has) { /* it gives a unit back */
            struct state next = s;
            if (plant == GIVEN_EARLY)
                next.p[i].held = --next.p[i].own;
            else
                next.p[i].has--;
            next.p[i].at = GIVES;
            reach(&next);
        }
        if (p->own < LIMIT) { /* it claims one */
            p->pending = plant != LOOK_FIRST;
            p->at = READS;
            reach(&s);
        }
        break;
    case DECIDES:
        decide(s, i);
        break;
    case WRITES:
        if (plant == PENDING_CLEARED_FIRST)
            p->held = ++p->own;
        else
            p->pending = 0;
        p->at = OWNS;
        p->saw_held = p->saw_pending = 0;
        reach(&s);
        break;
    case OWNS: { /* the driver answers, or refuses */
        struct state refused = s;
        refused.p[i].held = --refused.p[i].own;
        rest(refused, i);
        p->has++;
        rest(s, i);
        break;
    }
    case GIVES:
        if (plant == GIVEN_EARLY)
            p->has--;
        else
            p->held = --p->own;
        rest(s, i);
        break;
    default:
        look(s, i);
    }
}

/* A dead process's line: another strikes it out, a word at a time, or a new process takes it. */
static void bury(struct state s, int i)
{
    struct process *p = &s.p[i];
    struct state taken_over = s;
    if (p->alive && plant != LIVING_BURIED)
        return;
    if (!p->alive) {
        taken_over.p[i] = (struct process){.alive = 1};
        reach(&taken_over);
    }
    if (p->pending)
        p->pending = 0;
    else
        p->held = 0;
    reach(&s);
}

static void kill(struct state s, int i)
{
    struct process *p = &s.p[i];
    p->alive = p->at = p->has = p->own = p->saw_held = p->saw_pending = 0;
    reach(&s);
}

int main(int count, char **argument)
{
    struct state begin = {0};
    for (int i = 0; count == 2 && i < PLANTS; i++)
        if (!strcmp(argument[1], plants[i]))
            plant = (enum plant)i;
    table = calloc(ROOM, sizeof *table);
    taken = calloc(ROOM, 1);
    queue = calloc(ROOM / 2, sizeof *queue);
    if (!table || !taken || !queue)
        return 2;
    for (int i = 0; i < N; i++)
        begin.p[i].alive = 1;
    reach(&begin);
    while (first < last && !broken) {
        struct state s = table[queue[first++]];
        for (int i = 0; i < N; i++) {
            if (s.p[i].alive) {
                step(s, i);
                kill(s, i);
            }
            bury(s, i);
        }
    }
    printf("%s: %u states: %s\n", plants[plant], last, broken ? broken : "holds");
    return !broken == (plant != AS_IT_IS);
}
