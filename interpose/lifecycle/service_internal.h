/* What the service thread and the end of the process share. */
#ifndef CACHALOT_INTERPOSE_LIFECYCLE_SERVICE_INTERNAL_H
#define CACHALOT_INTERPOSE_LIFECYCLE_SERVICE_INTERNAL_H

#include <pthread.h>
#include <stdint.h>

#include "stats/report/options.h"

#define REQUEST_LOOK 512 /* in the page's `request`: the exit report is asked for */

/* As pthread_create, with all signals blocked and a stack for a report. */
int service_create_thread(pthread_t *thread, void *(*function)(void *), void *argument);

/* Writes one, as asked for by the environment, and notes in the page what came of it. 0 or -errno. */
int service_write_report(enum report_kind kind, int with_segments);

void service_check_signal(void);     /* did the program take it from us? Then it is said, once */
void service_wake(uint32_t request); /* async-signal-safe */

/* Before the service thread begins; whether there is one; and what it does when it wakes: the exit
 * report, if somebody waits for that. */
void ending_prepare(void);
void ending_has_thread(int has);
void ending_answer(void);

#endif
