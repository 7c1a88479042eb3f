/* The state of lanes (reuse/lane.c): the books of all submissions. The domain's lock guards them,
 * except for the part that a submitting thread reads without it. */
#ifndef CACHALOT_ALLOCATOR_STATE_LANE_STATE_H
#define CACHALOT_ALLOCATOR_STATE_LANE_STATE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/slab.h"

struct allocator;
struct fence;

/* A stream. Equal keys are the same stream, and a key never becomes another stream's before
 * lane_stream_ends. Within one thread equal names have the same key. */
struct lane_stream {
    uint64_t key, name;
    void *handle;
    int per_thread; /* handle 0 is the thread's own default stream */
};

/* What a look at the objects of the process says of work. LOADING: an object is being loaded; ask
 * again. */
enum lane_sight { SIGHT_CLEAR, SIGHT_LOADING, SIGHT_MISSED /* some may have passed */, SIGHT_PAST };

/* Calls into the driver about streams, by the submitting thread, with its context current. */
struct lane_ops {
    uint64_t (*context)(const struct lane_stream *stream); /* as in allocator_create; 0: unknown */
    int (*is_capturing)(const struct lane_stream *stream);
    int (*join)(const struct lane_stream *stream, void *event); /* later work waits for `event` */
    int (*barrier)(void); /* makes every thread's earlier stores visible: 0, or -1 */

    /* For looks (look.h); NULL: all work is known to be seen. record: records an event on the
     * stream; *event is NULL (it is made) or an earlier one. Returns 0, or -1. look_around: takes
     * no lock of the allocator. unseen: says that a look has found work that did not pass here. */
    int (*record)(const struct lane_stream *stream, void **event);
    enum lane_sight (*look_around)(void);
    void (*unseen)(void);
};

/* One for each thread that submits. A note says: this thread put that stream on the books under
 * that word. in_order: no launch of this thread is known to have followed there, so the next one
 * must not overtake the stream's earlier work. */
enum { LANE_NOTE_BITS = 3, LANE_NOTES = 1 << LANE_NOTE_BITS };
struct lane_thread {
    _Atomic uint64_t epoch; /* when the submission under way began; 0: none is */
    const struct lane_state *state;
    uint64_t word[LANE_NOTES], name[LANE_NOTES]; /* of each note; a word is never 0 */
    int in_order[LANE_NOTES];
    struct lane_thread *next, *previous;
};

struct lane_state {
    /* All 0 in a forked child: nothing is on the books there. Streams with names below least_name
     * are put on the books at each submission. */
    _Atomic uint64_t word, epoch, least_name;
    _Atomic uint64_t trust; /* look.h: changes when the looks of all threads begin anew */
    _Atomic int open;       /* 0: a free is not reusable at once, whatever the word says */
};

/* The word: a mode, flags, and a generation, which is never used twice. NONE: no work is
 * outstanding. SINGLE: all of it is on the lane. MANY: frees need a fence. EARLY: a block was freed
 * on the lane. DIRTY: no mark covers that free yet. MARKING: a thread is recording the mark. */
enum { LANE_NONE = 1, LANE_SINGLE = 2, LANE_MANY = 3, LANE_MODE = 3 };
enum { LANE_EARLY = 4, LANE_DIRTY = 8, LANE_MARKING = 16, LANE_GENERATION = 32 };

/* Returns the word of the next generation in `mode`. */
static inline uint64_t lane_next(uint64_t word, int mode)
{
    return (word / LANE_GENERATION + 1) * LANE_GENERATION + (unsigned)mode;
}

struct lane {
    struct lane_state state;    /* frees also change the word without the lock */
    const struct lane_ops *ops; /* NULL: there are no lanes */
    struct lane_thread *threads;
    struct slab thread_slab;
    uint64_t key;             /* of the lane's stream, in SINGLE */
    _Atomic uint64_t context; /* of all outstanding work; 0: there is none, or not known yet */
    uint64_t used_key;        /* of the stream, if used == 1 */
    int used;                 /* streams used since `counting`: 0, 1, or 2 for several */
    int mixed;                /* work of several contexts, or unseen work: no lane is restored */
    unsigned capturing;       /* captures under way */
    int unmarked; /* MANY, and the mark that streams should join could not be recorded */
    struct fence *mark, *owed; /* of the lane; owed: in MANY, the one that each stream must join */
    struct allocator *marked;  /* the allocator of both */
    const struct fence *candidate; /* the fence that leads back to a lane when it passes */
    uint64_t counting;             /* the epoch since which `used` counts; 0: `used` is void */
    uint64_t era;                  /* lanes left so far */
    unsigned seals, patience; /* fences sealed since the last candidate; how many to let pass */
    uint64_t random;          /* look.c: the state of the random intervals */
    unsigned clear; /* look.c: looks in a row, with nothing outstanding, that have found nothing */
    unsigned calm, evidence; /* look.c: looks without evidence since the last one; evidence */
    unsigned looks;          /* look.c: looks at a lane so far */
    unsigned marks_to_look;  /* look.c: marks until the next look at a lane */
    int past;                /* work is known to go past: there is no lane, for good */
    int blind;               /* a thread without a record has submitted */
    int closed;              /* lane_close; least_open: what least_name is without it */
    uint64_t least_open;
};

#endif
