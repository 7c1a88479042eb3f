/* The model of the lane rule: steps of threads and of the device, from a state to its successors.
 */
#ifndef CACHALOT_TEST_MODEL_MODEL_H
#define CACHALOT_TEST_MODEL_MODEL_H

#include "plants.h"
#include "state.h"

/* What programs may do beside submitting, freeing and allocating. */
enum {
    CAPTURES = 1,
    DESTROYS = 2,
    EXPORTS = 4,
    UNMAPPING = 8,
    PROGRAMMATICS = 16,
    ASYNC_FREES = 32,
    THREAD_ENDS = 64,
    CONTEXT_ENDS = 128,
    CACHES = 256, /* frees go to the thread's cache, step by step, without the lock */
};
struct config {
    const char *name;
    uint8_t threads, streams, blocks, works;
    uint16_t programs;
    uint8_t legacy; /* stream 0 is the legacy stream, ordered with stream 1 */
    uint8_t stream_context[STREAMS], block_context[BLOCKS];
    uint8_t strict;     /* only a free of the same thread justifies a wait */
    uint8_t harm_only;  /* what a program would notice; not where the lane says that work is */
    uint8_t touch_only; /* no work that touches no block */
};

/* A step: the state after it, and its words (a, b are numbers in them). `broken`: the property that
 * does not hold. */
struct step {
    struct state state;
    const char *words, *broken;
    int thread, a, b;
};
enum { MOST_STEPS = 256, DEVICE = -1, HOST = -2 };
struct steps {
    const struct config *config;
    const struct state *from;
    int number;
    struct step step[MOST_STEPS];
};

/* All steps possible in `from`. */
void model_steps(struct steps *steps, const struct config *config, const struct state *from);
void model_begin(struct state *state, const struct config *config);

/* A new step, its state as it is before it. */
struct step *step_new(struct steps *steps, int thread, const char *words, int a, int b);
struct step *step_to(struct steps *steps, int thread, const char *words, enum pc pc);
void step_breaks(struct step *step, const char *property);

#endif
