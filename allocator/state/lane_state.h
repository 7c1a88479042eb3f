/* The books of all submissions, for the allocator's own files (lane.c); guarded by the domain's
 * lock.
 */
#ifndef CACHALOT_ALLOCATOR_STATE_LANE_STATE_H
#define CACHALOT_ALLOCATOR_STATE_LANE_STATE_H

#include "allocator/reuse/lane.h"
#include "allocator/base/slab.h"

struct allocator;
struct fence;

/* The word: how things stand, in the low bits, and a generation that no two of its lives share. */
enum { LANE_NONE = 1, LANE_SINGLE = 2, LANE_MANY = 3, LANE_MODE = 3 };
enum { LANE_EARLY = 4, LANE_DIRTY = 8, LANE_MARKING = 16, LANE_GENERATION = 32 };

struct lane {
    struct lane_state state;    /* the word also changes without the lock, by frees */
    const struct lane_ops *ops; /* NULL: there are no lanes */
    struct lane_thread *threads;
    struct slab thread_slab;
    uint64_t key;             /* SINGLE: the lane */
    _Atomic uint64_t context; /* of all that is outstanding; 0: nothing is, or not known yet */
    uint64_t used_key;        /* used == 1 */
    int used;                 /* streams since `counting`: none, one, or (2) several */
    int mixed;                /* work of several contexts, or unseen work: nothing is restored */
    unsigned capturing;
    int unmarked;              /* MANY, and the mark to be joined could not be had */
    struct fence *mark, *owed; /* of `marked`; owed: MANY, and to be joined */
    struct allocator *marked;
    const struct fence *candidate;
    uint64_t counting; /* the epoch since which `used` counts; 0: it is of no use */
    uint64_t era;      /* lanes left so far */
    unsigned seals, patience;
};

/* Is a block freed now reusable at once? Then it is booked as such. alone: into the thread's own
 * cache, without the lock. */
int lane_free(struct allocator *allocator);
int lane_free_alone(struct allocator *allocator);

/* While a capture is under way there is no lane: is the work done that used what was freed on one
 * and is reusable? The domain's lock is held, and dropped meanwhile. */
int lane_is_over(struct allocator *allocator, uint64_t timeout_ns);

/* A fence was sealed: its frees are done, its event not recorded yet. And its end. */
void lane_sealed(struct allocator *allocator, const struct fence *fence);
void lane_fence_ended(struct allocator *allocator, const struct fence *fence, int passed);

/* The context is going. */
void lane_forget(struct allocator *allocator);

/* Waits for work that a lane's reuse has overtaken; without the lock. */
void lane_finish(struct domain *domain);

/* For lane.c and lane_end.c. settled: nobody records a mark now, and the lane, if there is one,
 * has its mark; returns the word. leave_for_good: until there is no lane. Both drop the lock
 * meanwhile. next: the word of the next generation. spoil: the books cannot lead back to a lane. */
uint64_t lane_settled(struct domain *domain);
void lane_leave_for_good(struct domain *domain);
void lane_spoil(struct lane *lane);
static inline uint64_t lane_next(uint64_t word, int mode)
{
    return (word / LANE_GENERATION + 1) * LANE_GENERATION + (unsigned)mode;
}

#endif
