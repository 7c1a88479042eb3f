/* Calls functions when a thread of the program ends. */
#ifndef CACHALOT_INTERPOSE_PROCESS_THREAD_EXIT_H
#define CACHALOT_INTERPOSE_PROCESS_THREAD_EXIT_H

/* Sets the functions that an ending thread calls, in this order, up to a NULL. Called before any
 * thread is watched. */
void thread_exit_calls(void (*const *functions)(void));

/* Watches the calling thread; idempotent. Returns 0 if its end cannot be seen, since the program
 * has taken all thread-specific keys. */
int thread_exit_watch(void);

#endif
