/*
 * The happens-before checker: work that meets other unfinished and unordered work in the same
 * bytes (one of them writing), or touches memory that is not mapped, ends the process.
 */
#ifndef SIM_CHECK_H
#define SIM_CHECK_H

#include <stddef.h>
#include <stdint.h>

struct sim_item;
struct sim_memory;
struct sim_range;

/* Called with the queue's clock already holding all that is ordered before the item. */
void check_submission(struct sim_item *item);
/* Does unfinished work touch these bytes, under whatever address? */
int check_bytes_busy(uintptr_t start, size_t bytes);
/* Unfinished work at these addresses, but for what releases the memory itself; or NULL. */
const struct sim_item *check_busy(const struct sim_range *range, const struct sim_memory *memory);
/* Says so, and ends the process. */
_Noreturn void check_failed(const char *what);
/* The memory goes away: nothing unfinished may touch it. */
void check_release(const struct sim_memory *memory);

#endif
