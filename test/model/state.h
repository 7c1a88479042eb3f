/* One state of the model: the lane rule's own (allocator/reuse/lane.h), the device's, each thread's.
 * Bytes only, so that states are compared and hashed as they lie. */
#ifndef CACHALOT_TEST_MODEL_STATE_H
#define CACHALOT_TEST_MODEL_STATE_H

#include <stdint.h>

#include "thread.h"

enum { THREADS = 3, STREAMS = 3, BLOCKS = 2, WORKS = 4 };

enum mode { NONE, SINGLE, MANY };
enum { EARLY = 1, DIRTY = 2, MARKING = 4 }; /* bits of SINGLE */
enum { SEVERAL = 0x80 };                    /* in `used`, beside one bit per stream */
enum { NO_CONTEXT = 0xff };

/* IN_GRACE: notes are void, `used` has begun anew, but a submission from before is under way. */
enum candidate { NO_CANDIDATE, IN_GRACE, CANDIDATE_SEALED, CANDIDATE_RECORDED };

/* Sets of work are bits: bit i is works[i]. Work that has finished is in no set: an empty set is an
 * event that passed. */
struct work {
    uint8_t where; /* stream, or the next */
    uint8_t context, touches /* block + 1 */, old /* the block was freed since */;
    uint8_t deps;  /* waits for these */
    uint8_t fresh; /* bit t: no free of thread t began since the call that submitted it began */
};
enum { ON_DEAD_STREAM = 0x40 };

enum block_state { LIVE, FREEING, REUSABLE, SEALED, PENDING, UNFENCED, TAKEN };
struct block {
    uint8_t state, fence, exported;
};

struct state {
    uint8_t mode, lane, bits, lock /* thread + 1 */;
    uint8_t used, context, mixed, capturing;
    uint8_t mark, mark_context, mark_gone, owed;
    uint8_t candidate, candidate_mark;
    uint8_t captures, recordings, active /* streams that the driver captures */;
    uint8_t closing, gone /* streams */, dead /* contexts, from the call on */;
    uint8_t tail[STREAMS];   /* what the next work on the stream waits for */
    uint8_t before[STREAMS]; /* what the last ordinary work on it waited for: all that a
                                programmatic launch does */
    uint8_t number;
    struct work works[WORKS];
    struct block blocks[BLOCKS];
    struct thread threads[THREADS];
};

#endif
