/* A thread of the modelled program: where in which call it is, its slot and its note. */
#ifndef CACHALOT_TEST_MODEL_THREAD_H
#define CACHALOT_TEST_MODEL_THREAD_H

#include <stdint.h>

enum pc {
    IDLE,
    SUBMIT_SLOT,
    SUBMIT_LOAD,
    SUBMIT_LOCK,
    SUBMIT_STORE,
    SUBMIT_JOIN,
    SUBMIT_JOINED,
    SUBMIT_EFFECT,
    SUBMIT_END,
    MARK_RECORD,
    MARK_ADOPT,
    FREE_DECIDE,
    FREE_FLAG,
    FREE_LOOK,
    FREE_CONTEXT,
    FREE_SET,
    FREE_KEEP,
    FENCE_EPOCH,
    FENCE_SCAN,
    FENCE_GATE,
    FENCE_RECORD,
    FENCE_LATE_SEAL,
    CAPTURE_LOCK,
    CAPTURE_COUNT,
    CAPTURE_BEGIN,
    CAPTURE_ENDED,
    CAPTURE_LAST,
    DESTROY_LOCK,
    DESTROY_DRIVER,
    DESTROY_LATE,
    CONTEXT_LOCK,
    CONTEXT_DRIVER,
    GIVE_LOCK,
    GIVE_WAIT,
};

enum { NO_SLOT, SLOT_OLD, SLOT_CURRENT };
enum {
    BUFFERED = 1,       /* the slot is written, but others do not see it yet */
    EPOCH_OLD = 2,      /* the epoch was raised between load and store */
    CHANGED = 4,        /* the mode or generation changed since the lock was left, or the word since
                           a free looked at it */
    PROGRAMMATIC = 8,   /* the launch is not ordered on its stream */
    ASYNC = 16,         /* cuMemFreeAsync */
    HAS_CANDIDATE = 32, /* its fence is the candidate */
    UNMAPS = 64,        /* gives memory back; else exports */
};
struct thread {
    uint8_t pc, after; /* where to go on after a mark */
    uint8_t stream, block /* touched, freed, given: index + 1 */, blocks /* under its fence */;
    uint8_t flags, slot, note /* stream + 1: joined, on the books, in this generation */;
    uint8_t mark /* the event that it waits on */, fresh /* of what it submits */;
};

#endif
