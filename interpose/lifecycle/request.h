/* What asks the service thread for something: the word `request` in the page, set by other
 * processes, by the signal and by the end of the process. */
#ifndef CACHALOT_INTERPOSE_LIFECYCLE_REQUEST_H
#define CACHALOT_INTERPOSE_LIFECYCLE_REQUEST_H

#include <stdint.h>

/* Requests that come from this process; the page's own are in stats/page/page.h. */
#define REQUEST_SIGNAL 256 /* the signal asks for a report */
#define REQUEST_LOOK 512   /* the exit report is asked for */

/* Adds to the requests and wakes the service thread. Async-signal-safe. */
void request_wake(uint32_t request);

/* All requests that have come since the last call. */
uint32_t request_take(void);

/* Waits for the next one, for a second at most. Returns 1 if none came. */
int request_wait(void);

/* What was taken is carried out: wakes the processes that wait for that. */
void request_answer(void);

/* Takes the signal, unless the program has it. */
void request_take_signal(void);

/* Warns, once, if the program has taken the signal from us. */
void request_check_signal(void);

#endif
