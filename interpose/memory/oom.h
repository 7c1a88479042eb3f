/* The page's record of requests that ran out of memory. */
#ifndef CACHALOT_INTERPOSE_MEMORY_OOM_H
#define CACHALOT_INTERPOSE_MEMORY_OOM_H

#include <stdint.h>

#include "interpose/context/context.h"
#include "stats/page/page.h"

/* The device's counters, with what threads have counted alone. */
struct device_stats oom_numbers(const struct context *context);

/* Notes why a request failed: the state of the device, and whether the request would have fitted
 * natively. */
void oom_note(const struct context *context, uint64_t bytes);

/* Notes that the driver had no memory of that kind. context: NULL where nothing of the current one
 * is cached. */
void oom_note_uncached(const struct context *context, uint64_t bytes, enum uncached_kind kind);

/* Notes that the option fail_alloc refused request `number`, of that kind. context: as
 * above. */
void oom_note_refused(const struct context *context, uint64_t bytes, uint64_t number,
                      enum uncached_kind kind);

#endif
