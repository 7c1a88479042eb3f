/* The device of the model: work, what it waits for, and the properties that it can see broken. */
#ifndef CACHALOT_TEST_MODEL_DEVICE_H
#define CACHALOT_TEST_MODEL_DEVICE_H

#include "model.h"

/* Unfinished work of the context: what an event of it, recorded now, stands for. */
uint8_t device_work_of(const struct state *state, int context);

/* An event is recorded: not while the driver captures. */
uint8_t device_record(struct step *step, int context);

/* Thread t's submission takes effect. */
void device_submit(struct step *step, const struct config *config, int t);

/* Thread t makes its stream wait for an event. */
void device_join(struct step *step, const struct config *config, int t);

/* Thread t would wait for this work: none of it may be later than the frees that justify the wait.
 */
void device_check_wait(struct step *step, const struct config *config, int t, uint8_t work);

/* Thread t begins a free of block b. */
void device_free_begins(struct state *state, const struct config *config, int t, int b);
uint8_t device_fresh(const struct state *state, const struct config *config, int context);

void device_stream_ends(struct state *state, int stream);
void device_context_ends(struct state *state, int context);

/* Steps of the device itself: work finishes. */
void device_steps(struct steps *steps);

/* In NONE and SINGLE all unfinished work, and all that is on its way to the driver, is on the lane.
 */
void device_check_lane(struct step *step, const struct config *config);

#endif
