/* The calls of a program's thread: what it may begin when idle, and the steps of a call that has
 * begun. */
#ifndef CACHALOT_TEST_MODEL_CALLS_H
#define CACHALOT_TEST_MODEL_CALLS_H

#include "model.h"

void submit_calls(struct steps *steps, int t);
void submit_steps(struct steps *steps, int t);
void free_calls(struct steps *steps, int t);
void free_steps(struct steps *steps, int t);
void capture_calls(struct steps *steps, int t);
void capture_steps(struct steps *steps, int t);
void end_calls(struct steps *steps, int t);
void end_steps(struct steps *steps, int t);
void give_calls(struct steps *steps, int t);
void give_steps(struct steps *steps, int t);

/* Whether a thread is in a call on the stream; in one that touches block b and has not taken
 * effect. */
int submits_to(const struct state *s, int stream);
int submits_touching(const struct state *s, int b);

/* The blocks become pending together, under one fence of the context that thread t is about to
 * record. */
void free_seal(struct step *step, int t, uint8_t blocks, int context);

#endif
