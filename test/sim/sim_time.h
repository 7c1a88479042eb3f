/*
 * The clock of the simulation (real, or moved by hand), the one lock, and the thread that keeps
 * visible work going and runs host functions.
 */
#ifndef SIM_TIME_H
#define SIM_TIME_H

#include <stddef.h>
#include <stdint.h>

struct sim_item;

enum host_state { HOST_WAITING, HOST_OFFERED, HOST_DONE };

int time_is_manual(void);
uint64_t time_now(void);
void time_jump_to(uint64_t ns);
void time_nap(uint64_t ns);

/* The thread starts with the first work whose effect a host may see without asking. */
void host_wake(void);
void host_offer(struct sim_item *item);

uint64_t engine_next_end(void);
size_t engine_unfinished(void);

#endif
