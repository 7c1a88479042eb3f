/* The limit of a group of processes, by its books (stats/page/group.h). Every function does nothing
 * where no limit is set. */
#ifndef CACHALOT_INTERPOSE_CONTEXT_GROUP_LIMIT_H
#define CACHALOT_INTERPOSE_CONTEXT_GROUP_LIMIT_H

#include <stdint.h>

struct context;

/* Opens the books of the context's device, once for each device. */
void group_limit_begin(const struct context *context);

/* Claims memory before the driver is asked for it. Returns 0 if the group may not have it. count: what
 * the context has. */
int group_limit_claim(const struct context *context, _Atomic uint64_t *count, uint64_t bytes);

/* Gives a share back after the driver has the memory. */
void group_limit_give(const struct context *context, _Atomic uint64_t *count, uint64_t bytes);

/* The bytes that the group may still take; UINT64_MAX: no limit. bury: finds out who is dead, which
 * opens files. */
uint64_t group_limit_room(const struct context *context, int bury);

#endif
