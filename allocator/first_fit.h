/* The first of many places that has as much as is asked for: a tree of maxima over an array, so that it is found,
 * and what a place has is changed, in O(log n) of the places that were ever used. */
#ifndef CACHALOT_ALLOCATOR_FIRST_FIT_H
#define CACHALOT_ALLOCATOR_FIRST_FIT_H

#include <stdint.h>

struct first_fit {
    uint32_t *most;  /* 2 * leaves, zeroes at first; [i] is the larger of [2 * i] and [2 * i + 1] */
    uint32_t leaves; /* a power of two; place p is leaf leaves + p */
    uint32_t root;   /* that all places lie below that ever had anything; leaves at first */
};

/* The most that any place has. */
static inline uint32_t first_fit_most(const struct first_fit *fit)
{
    return fit->most[fit->root];
}

static inline void first_fit_set(struct first_fit *fit, uint32_t place, uint32_t has)
{
    uint32_t *most = fit->most, at = fit->leaves + place;
    for (; place >= fit->leaves / fit->root; fit->root /= 2)
        most[fit->root / 2] = most[fit->root];
    uint32_t had = most[at];
    most[at] = has;
    if (has >= had) {
        while ((at /= 2) >= fit->root && most[at] < has)
            most[at] = has;
        return;
    }
    while (at > fit->root) {
        uint32_t beside = most[at ^ 1], more = most[at] > beside ? most[at] : beside;
        if (most[at /= 2] == more)
            break;
        most[at] = more;
    }
}

/* UINT32_MAX: there is none. */
static inline uint32_t first_fit_find(const struct first_fit *fit, uint32_t least)
{
    uint32_t at = fit->root;
    if (fit->most[at] < least)
        return UINT32_MAX;
    while (at < fit->leaves)
        at = 2 * at + (fit->most[2 * at] < least);
    return at - fit->leaves;
}

#endif
