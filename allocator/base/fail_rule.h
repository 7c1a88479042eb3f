/* Which allocations are refused on purpose (option fail_alloc). */
#ifndef CACHALOT_ALLOCATOR_BASE_FAIL_RULE_H
#define CACHALOT_ALLOCATOR_BASE_FAIL_RULE_H

#include <stdint.h>

#define FAIL_RULE_TEXT 64

struct fail_rule {
    char text[FAIL_RULE_TEXT]; /* as given; empty: nothing is refused and nothing counted */
    char site[FAIL_RULE_TEXT]; /* only requests of call sites with this text count; empty: all */
    uint32_t kinds;            /* bits of fail_rule_kind: only these count */
    uint64_t nth, every;       /* 0: not given */
    uint64_t seed;
    double chance; /* 0: not given */
};

/* Reads a list of `N`, `every:N`, `p:PERCENT%:SEED`, `kind:KIND` and `site:TEXT`. Brackets are needed
 * where there is a comma or a colon. A rule without any of the first three refuses every request that
 * counts. N = 0 refuses none. Returns 0, or -1 with the rule unchanged. */
int fail_rule_read(struct fail_rule *rule, const char *text);

/* The bit of a kind of memory; 0: of none that can be refused. */
uint32_t fail_rule_kind(const char *name);

/* Does the rule refuse request `number`, counted from 1? The answer depends on nothing else. */
int fail_rule_refuses(const struct fail_rule *rule, uint64_t number);

#endif
