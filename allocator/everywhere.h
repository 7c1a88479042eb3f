/* Memory that the host uses, and the work of every context: pinned memory.
 *
 * The host may write to a block at once, so the order of a stream protects nothing. A block is
 * handed out again when a point recorded at its free has passed. A point is an event in each
 * context that existed then. Allocators of such memory have a domain of their own (domain_create);
 * their device_ops answer by the functions below. `domain` is that of device memory, which has an
 * allocator for each context; `own` is the context in which the memory was allocated, as in
 * allocator_create. The caller holds no lock. */
#ifndef CACHALOT_ALLOCATOR_EVERYWHERE_H
#define CACHALOT_ALLOCATOR_EVERYWHERE_H

#include <stdint.h>

struct domain;

/* Records a point. *point is NULL (it is made) or an earlier one, about which no thread asks. As
 * fence_record in device.h: DEVICE_DEFERRED also if a context may be about to end. An error of
 * another context is none: its work has ended. */
int everywhere_record(struct domain *domain, uint64_t own, void **point);

/* Has the point passed, after a wait of at most `timeout_ns`? As fence_query and fence_wait in
 * device.h. Without a limit it waits for the own context alone, as CUDA's free does, and for
 * others up to policy.idle_wait_ns: their work may need the calling thread. */
int everywhere_wait(struct domain *domain, uint64_t own, void *point, uint64_t timeout_ns);

/* The same for all work submitted until now. As synchronize in device.h. */
int everywhere_synchronize(struct domain *domain, uint64_t own);

/* Call it before a free. Waits for work of the context `own` (0: of any) that the host may see, as
 * CUDA's free does. *idle: no work is outstanding in any context, so that a block freed now is
 * reusable at once (FREED_IDLE). Returns an error of the device, or 0. */
int everywhere_settle(struct domain *domain, uint64_t own, int *idle);

#endif
