/* All orders, one after the other by number, and what the rules of streams say of each. */
#include "hang.h"

#include <stdio.h>
#include <string.h>

static const char *const kind_names[] = {"legacy", "blocking", "non-blocking", "per-thread"};
static const char *const feeder_names[] = {"the host", "a kernel", "a host function"};
static const char *const prior_names[] = {"nothing", "the lane", "the other stream", "both"};
static const char *const step_names[] = {"free", "malloc", "spin", "feed", "use", "free it"};

/* The n-th permutation of the five steps; 0 if it uses before it takes. */
static int permutation(unsigned n, struct order *order)
{
    char left[] = {FREE_OLD, TAKE, SPIN, FEED, USE};
    unsigned count = 5, taken = 0;
    for (order->count = 0; count; count--) {
        unsigned pick = n % count;
        n /= count;
        char step = left[pick];
        memmove(left + pick, left + pick + 1, count - pick - 1);
        taken |= step == TAKE;
        if (step == USE && !taken)
            return 0;
        order->step[order->count++] = step;
    }
    return 1;
}

/* The n-th way (of 140) to merge two threads' steps; the first may take before it spins or after.
 */
static int merge(unsigned n, struct order *order)
{
    static const char first[2][4] = {{TAKE, SPIN, FEED, USE}, {SPIN, TAKE, FEED, USE}};
    static const char then[4] = {FREE_OLD, TAKE, USE, FREE_NEW};
    unsigned which = n / 256, mask = n % 256, at[2] = {0, 0};
    if (which > 1 || __builtin_popcount(mask) != 4)
        return 0;
    for (order->count = 0; order->count < 8; order->count++) {
        int second = mask >> order->count & 1;
        order->second[order->count] = (char)second;
        order->step[order->count] = second ? then[at[1]++] : first[which][at[0]++];
    }
    return 1;
}

int order_make(unsigned n, struct order *order)
{
    enum {
        ALONE = 120 * 2 * KINDS * KINDS * FEEDERS * PRIORS,
        BESIDE = 512 * KINDS * KINDS * PRIORS
    };
    memset(order, 0, sizeof(*order));
    order->threads = n < ALONE ? 1 : 2;
    if (n >= ALONE + BESIDE)
        return 0;
    unsigned rest = n < ALONE ? n : n - ALONE, ways = n < ALONE ? 120 : 512;
    unsigned way = rest % ways;
    rest /= ways;
    order->lane = (enum kind)(rest % KINDS);
    order->other = (enum kind)(rest / KINDS % KINDS);
    rest /= KINDS * KINDS;
    order->prior = (enum prior)(rest % PRIORS);
    rest /= PRIORS;
    if (order->threads == 1) {
        order->use_on_other = (int)(rest % 2);
        order->feeder = (enum feeder)(rest / 2);
    }
    int made = order->threads == 1 ? permutation(way, order) : merge(way, order);
    if (!made)
        order->count = 0; /* a number without an order */
    return 1;
}

static int is_blocking(enum kind kind)
{
    return kind == BLOCKING || kind == PER_THREAD;
}

/* Does work on `later` wait for what is on `earlier`? `same`: of one thread, so one stream. */
static int waits(enum kind later, enum kind earlier, int same_stream)
{
    return same_stream || (later == LEGACY && is_blocking(earlier)) ||
           (is_blocking(later) && earlier == LEGACY);
}

/* The stream of a step: the lane, or the other; they are two streams also where they are of one
 * kind, but for the legacy one and the thread's own. */
static enum kind stream_of(const struct order *order, int step, int *is_other)
{
    *is_other = step == FEED || (step == USE && order->use_on_other);
    enum kind kind = *is_other ? order->other : order->lane;
    if (kind == order->lane && (kind == LEGACY || kind == PER_THREAD))
        *is_other = 0;
    return kind;
}

int order_ends(const struct order *order)
{
    int behind[12] = {0}, spun = 0, fed = 0; /* behind[i]: waits for the spinning kernel */
    if (order->threads == 2)
        return 1;
    for (int i = 0; i < order->count; i++) {
        int step = order->step[i], is_other;
        if (step == SPIN && !fed)
            behind[i] = spun = 1;
        if (step == FREE_OLD && spun && !fed)
            return 0;
        if ((step == FEED && order->feeder != HOST) || step == USE) {
            enum kind kind = stream_of(order, step, &is_other);
            for (int j = 0; j < i && !fed; j++) {
                int other;
                enum kind earlier = stream_of(order, order->step[j], &other);
                if (behind[j] && waits(kind, earlier, kind == earlier && is_other == other))
                    behind[i] = 1;
            }
        }
        if (step == FEED && behind[i])
            return 0;
        fed |= step == FEED;
    }
    return 1;
}

/* Of two threads: what the first still asks of the driver while a free of the second waits. */
unsigned order_class(const struct order *order)
{
    unsigned spun = 0, waiting = 0, class = 0;
    for (int i = 0; i < order->count && order->threads == 2; i++) {
        int step = order->step[i];
        if (step == FEED)
            break;
        spun |= step == SPIN;
        waiting |= spun && order->second[i] && (step == FREE_OLD || step == FREE_NEW);
        if (waiting && !order->second[i])
            class |= 1u << step;
    }
    return class;
}

void order_print(unsigned n, const struct order *order)
{
    printf("order %u: spins on %s, %s feeds", n, kind_names[order->lane],
           feeder_names[order->feeder]);
    if (order->feeder != HOST || order->use_on_other || order->threads == 2)
        printf(" (other stream: %s)", kind_names[order->other]);
    printf(", used before by %s:", prior_names[order->prior]);
    for (int i = 0; i < order->count; i++)
        printf(" %s%s%s", order->second[i] ? "[" : "", step_names[(int)order->step[i]],
               order->second[i] ? "]" : "");
    printf("%s\n", order->use_on_other ? ", used on the other" : "");
    fflush(stdout);
}
