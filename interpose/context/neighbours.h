/* Memory on demand, between the processes of one user (stats/page/need.h). */
#ifndef CACHALOT_INTERPOSE_CONTEXT_NEIGHBOURS_H
#define CACHALOT_INTERPOSE_CONTEXT_NEIGHBOURS_H

#include <stdint.h>

struct context;

/* Asks the other processes on the context's device, or of them those of the group, for `bytes`
 * bytes, and waits while they give. One
 * that does not begin within 200 ms (20 ms, if it did not the last time), or gives for more than
 * 2 s, is not waited for. Returns how many
 * have answered. For the allocator, whose lock is not held. */
int neighbours_ask(const struct context *context, uint64_t bytes, int of_group);

struct page_oom;

/* Notes in the event which of them hold memory of the context's device. */
void neighbours_note(const struct context *context, struct page_oom *event);

/* For the service thread: gives what others ask for, of idle memory. */
void neighbours_give(void);

#endif
