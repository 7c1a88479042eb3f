/* The books of all submissions (lane.c), guarded by the domain's lock; and what a thread that submits sees of them. */
#ifndef CACHALOT_ALLOCATOR_STATE_LANE_STATE_H
#define CACHALOT_ALLOCATOR_STATE_LANE_STATE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/slab.h"

struct allocator;
struct fence;

/* Where work goes. Equal keys are surely the same stream, and a key never becomes another stream's
 * before lane_stream_ends. Equal names of one thread are surely the same key. */
struct lane_stream {
    uint64_t key, name;
    void *handle;
    int per_thread; /* handle 0 is the thread's own default stream */
};

/* What is asked of the driver about streams; in the thread that submits, with its context current.
 */
struct lane_ops {
    uint64_t (*context)(const struct lane_stream *stream); /* as in allocator_create; 0: unknown */
    int (*is_capturing)(const struct lane_stream *stream);
    int (*join)(const struct lane_stream *stream, void *event); /* later work waits for `event` */
    int (*barrier)(void); /* every thread's earlier stores are seen from here on: 0, or -1 */
};

/* One per thread that submits. A note: this thread put that stream on the books under that word.
 * `in_order`: and nothing of its own is surely on the stream since, so a launch must not overtake.
 */
enum { LANE_NOTE_BITS = 3, LANE_NOTES = 1 << LANE_NOTE_BITS };
struct lane_thread {
    _Atomic uint64_t epoch; /* when the submission under way began; 0: none is */
    const struct lane_state *state;
    uint64_t word[LANE_NOTES], name[LANE_NOTES]; /* of each note; a word is never 0 */
    int in_order[LANE_NOTES];
    struct lane_thread *next, *previous;
};

struct lane_state {
    /* All 0 in a forked child: nothing is on the books there. Names below the least never are. */
    _Atomic uint64_t word, epoch, least_name;
};

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

#endif
