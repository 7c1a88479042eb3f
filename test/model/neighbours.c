/* model_neighbours [PLANT]: memory on demand between processes, explored in full (stats/page/need.c,
 * interpose/context/neighbours.c). Each of three processes has a thread that gives for ever, and
 * two have a thread that asks once; any process may be killed between any two steps. A step is one access to a
 * page. Waits have limits, and a limit may pass at any moment: a step of the asker that is always
 * possible, so the search below leaves it out where it looks for a wait in vain.
 *
 * It holds that (1) a process that counts as answered has looked for needs after the asker noted
 * its own, or is dead; (2) without a limit that passes, every asker comes to an end: nobody waits in
 * a circle, and no request is lost. Exit 0: it holds, or the planted bug was found. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 3, ASKERS = 2, TURNS = 8 /* `gave` counts modulo this */ };
enum plant {
    AS_IT_IS,
    NEED_LATE,
    BEFORE_LATE,
    HALF_GIFT,
    TAKE_LATE,
    ONE_COUNT,
    DEAD_WAITED,
    WAITS_TO_GIVE,
    PLANTS
};
static const char *const plants[PLANTS] = {"as_it_is",    "need_late",    "before_late",
                                           "half_gift",   "take_late",    "one_count",
                                           "dead_waited", "waits_to_give"};
static enum plant plant;

/* The asker: it notes its need; asks the others in turn (reads `gave`, then sets the request); waits
 * for their answers in turn; is done. */
enum asks { NOTES, ASKS, WAITS = ASKS + 2 * N, DONE = WAITS + N };
/* The giver: waits for a request; has one; gives (`gave` is odd), and looks at the needs of all in
 * turn. */
enum gives { IDLE, TAKEN, GIVES };

struct process {
    uint8_t alive, need, request, gave, asker, giver;
    uint8_t before[N]; /* what the asker read of each */
    uint8_t looked;    /* bit i: this giver looked at the need that i has noted */
};
struct state {
    struct process p[N];
};

#define PLACES (1u << 25)
static struct state *table;
static uint32_t *queue;
static unsigned first, last;
static const char *broken;

static unsigned hash(const struct state *s)
{
    const uint8_t *bytes = (const uint8_t *)s;
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < sizeof *s; i++)
        h = (h ^ bytes[i]) * 1099511628211u;
    return (unsigned)(h ^ h >> 32) % PLACES;
}

static void reach(const struct state *s)
{
    unsigned at = hash(s);
    for (; table[at].p[0].before[0];
         at = (at + 1) % PLACES) /* before[0] of the first marks a place */
        if (!memcmp(&table[at], s, sizeof *s))
            return;
    if (last >= PLACES / 2) {
        fprintf(stderr, "too many states\n");
        exit(2);
    }
    table[at] = *s;
    queue[last++] = at;
}

static int is_answered(const struct process *of, uint8_t before)
{
    unsigned from = plant == HALF_GIFT ? before : before + before % 2u;
    unsigned gave = (of->gave + TURNS - from % TURNS) % TURNS;
    if (!of->alive)
        return plant != DEAD_WAITED;
    return gave >= (plant == ONE_COUNT ? 1 : 2) && gave < TURNS - 1;
}

/* A step of the asker of `i`. Returns 0 if it waits. */
static int ask(struct state s, int i)
{
    struct process *own = &s.p[i];
    int step = own->asker;
    if (step == DONE)
        return 0;
    if (step == NOTES) {
        own->need = (uint8_t)(plant != NEED_LATE);
        for (int j = 0; j < N; j++)
            s.p[j].looked &= (uint8_t) ~(1 << i);
    } else if (step < WAITS) {
        int of = (step - ASKS) / 2, second = (step - ASKS) % 2;
        if (of != i && second == (plant == BEFORE_LATE))
            own->before[of] = (uint8_t)(s.p[of].gave | 128);
        else if (of != i)
            s.p[of].request = 1;
        if (step == WAITS - 1)
            own->need = 1;
    } else {
        int of = step - WAITS;
        if (of != i) {
            if (!is_answered(&s.p[of], own->before[of] & 127))
                return 0;
            if (s.p[of].alive && !(s.p[of].looked >> i & 1))
                broken = "an answer without a look";
        }
        if (step == DONE - 1)
            own->need = 0, memset(own->before, 128, N);
    }
    own->asker++;
    reach(&s);
    return 1;
}

static int give(struct state s, int i)
{
    struct process *own = &s.p[i];
    switch (own->giver) {
    case IDLE:
        if (!own->request || (plant == WAITS_TO_GIVE && own->asker > NOTES && own->asker < DONE))
            return 0;
        own->request = (uint8_t)(plant == TAKE_LATE);
        break;
    case TAKEN:
        own->gave = (uint8_t)((own->gave + 1) % TURNS);
        break;
    default: /* it looks at the need of the next process; after the last it has given */
        if (own->giver < GIVES + N) {
            own->looked |= (uint8_t)(s.p[own->giver - GIVES].need << (own->giver - GIVES));
            break;
        }
        own->gave = (uint8_t)((own->gave + 1) % TURNS);
        if (plant == TAKE_LATE)
            own->request = 0;
        own->giver = IDLE;
        reach(&s);
        return 1;
    }
    own->giver++;
    reach(&s);
    return 1;
}

static void kill(struct state s, int i)
{
    int alive = 0;
    for (int j = 0; j < N; j++)
        alive += s.p[j].alive;
    if (alive == 1 || !s.p[i].alive)
        return;
    s.p[i].alive = 0; /* its page stays as it is */
    reach(&s);
}

int main(int count, char **argument)
{
    struct state begin = {0};
    for (int i = 0; count == 2 && i < PLANTS; i++)
        if (!strcmp(argument[1], plants[i]))
            plant = (enum plant)i;
    table = calloc(PLACES, sizeof *table);
    queue = calloc(PLACES / 2, sizeof *queue);
    if (!table || !queue)
        return 2;
    for (int i = 0; i < N; i++)
        begin.p[i].alive = 1, begin.p[i].asker = (uint8_t)(i < ASKERS ? NOTES : DONE),
        memset(begin.p[i].before, 128, N);
    reach(&begin);
    while (first < last && !broken) {
        struct state s = table[queue[first++]];
        int moves = 0, waits = 0;
        for (int i = 0; i < N; i++) {
            if (!s.p[i].alive)
                continue;
            moves += ask(s, i) + give(s, i);
            waits += s.p[i].asker != DONE;
            kill(s, i);
        }
        if (!moves && waits)
            broken = "a wait in vain";
    }
    printf("%s: %u states: %s\n", plants[plant], last, broken ? broken : "holds");
    return !broken == (plant != AS_IT_IS);
}
