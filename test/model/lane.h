/* The word, the marks and the notes: what several calls do to the lane. */
#ifndef CACHALOT_TEST_MODEL_LANE_H
#define CACHALOT_TEST_MODEL_LANE_H

#include "model.h"

/* Whoever holds a copy of the word finds it changed. */
void lane_changed(struct state *s);

/* So does a free that has looked at it; also when its bits change. */
void lane_word_changed(struct state *s);

/* All notes are void. */
void lane_generation(struct state *s);

/* Slots written before are older than those written from now on. */
void lane_epoch(struct state *s);

/* SINGLE, clean, or NONE → MANY; E is owed if anything was freed on the lane. */
void lane_leave(struct state *s, uint8_t used);

/* SINGLE, dirty: thread t records E with no lock held, and goes on at `after`. */
void lane_mark(struct step *step, int t, enum pc after);

/* Whether thread t could take the lock. */
int lane_may_lock(const struct state *s, int t);

/* The key under which the rule knows the stream. */
int lane_key(int stream);

/* Steps of a thread that marks, and of whoever polls (back to a lane; fences that passed). */
void lane_mark_steps(struct steps *steps, int t);
void lane_poll_steps(struct steps *steps);

#endif
