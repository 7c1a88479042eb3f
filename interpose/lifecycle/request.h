/* Requests to the service thread: bits of the word `request` in the page. Other processes, the
 * signal and the exit set them. */
#ifndef CACHALOT_INTERPOSE_LIFECYCLE_REQUEST_H
#define CACHALOT_INTERPOSE_LIFECYCLE_REQUEST_H

#include <stdint.h>

/* Requests of this process itself; those of other processes are in stats/page/page.h. */
#define REQUEST_SIGNAL 256 /* the signal asks for a report */
#define REQUEST_LOOK 512   /* the exiting thread waits for the exit report, or a rest is over */

/* Adds `request` and wakes the service thread. Async-signal-safe. */
void request_wake(uint32_t request);

/* Takes all requests since the last call. */
uint32_t request_take(void);

/* Waits for a request, for at most so long; UINT64_MAX: without a limit. */
void request_wait(uint64_t most_ns);

/* Tells the waiting processes that the requests taken are carried out. */
void request_answer(void);

/* A CUDA library is in the process, or may soon be: there the signal does no harm from now on. One
 * that comes before CUDA begins asks for a report at the begin. Acts only where the signal's action
 * is the default. */
void request_expect_signal(void);

/* Installs the signal handler, unless the program handles the signal. */
void request_take_signal(void);

/* Warns, once, if the program has replaced our signal handler. The program keeps the signal. */
void request_check_signal(void);

#endif
