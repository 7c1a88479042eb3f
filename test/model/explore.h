/* Breadth first through all states of a configuration: a counterexample is a shortest one, and its
 * trace is printed. */
#ifndef CACHALOT_TEST_MODEL_EXPLORE_H
#define CACHALOT_TEST_MODEL_EXPLORE_H

#include <stddef.h>

#include "model.h"

struct exploration {
    size_t most_states; /* stop there */
    int fingerprints;   /* keep 64 bits of a state that was expanded: more of them, no trace */
    int count_steps;    /* print how often each step was taken */

    size_t states, transitions, bytes;
    double seconds;
    int complete;
    const char *broken; /* the property, NULL when all hold */
    int length;         /* steps of the trace */
};

void explore(struct exploration *exploration, const struct config *config);

#endif
