/* All states seen, in order of finding. Either whole, each with the one that it was found from, or
 * as fingerprints of 64 bits, whole only until they are expanded. */
#ifndef CACHALOT_TEST_MODEL_SPACE_H
#define CACHALOT_TEST_MODEL_SPACE_H

#include <stddef.h>

#include "state.h"

struct space {
    struct state *states;
    uint32_t *parents; /* NULL: fingerprints */
    uint64_t *table;
    size_t number, most, table_size;
    size_t room;     /* in states; less than `most` with fingerprints */
    size_t expanded; /* states before it are not needed with fingerprints */
    int threads;     /* that are alike */
};

void space_begin(struct space *space, size_t most, int fingerprints, int threads);
void space_end(struct space *space);
size_t space_bytes(const struct space *space);
const struct state *space_at(const struct space *space, size_t index);

/* Makes the state canonical, returns its hash, and has memory get ready for it. */
uint64_t space_prepare(const struct space *space, struct state *state);

/* Returns 0 when there is no room for it. */
int space_add(struct space *space, const struct state *state, uint64_t h, size_t parent);

/* Threads have the same programs: of the states that differ in their names alone, one stands for
 * all. from[i]: where the i-th thread of it was. */
void space_canonical(const struct space *space, struct state *state, int *from);

#endif
