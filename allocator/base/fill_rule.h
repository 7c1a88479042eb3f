/* What is written into memory before the program gets it (option fill). */
#ifndef CACHALOT_ALLOCATOR_BASE_FILL_RULE_H
#define CACHALOT_ALLOCATOR_BASE_FILL_RULE_H

#include <stdint.h>

#define FILL_RULE_TEXT 64

enum fill_kind { FILL_NONE, FILL_ZERO, FILL_NAN, FILL_RANDOM };

struct fill_rule {
    char text[FILL_RULE_TEXT]; /* as given; empty: nothing is written */
    enum fill_kind kind;
    uint64_t seed;
    uint64_t first, last; /* requests that get it, others get zeros; last 0: all get it */
};

/* Reads `zero`, `nan` or `random:SEED`, and behind a comma `FIRST-LAST`, in brackets where there is
 * a comma. Returns 0, or -1 with the rule unchanged. */
int fill_rule_read(struct fill_rule *rule, const char *text);

/* The 32 bits that the block of request `number` (from 1) is filled with. */
uint32_t fill_rule_word(const struct fill_rule *rule, uint64_t number);

#endif
