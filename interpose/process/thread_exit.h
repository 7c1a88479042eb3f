/* What must be done when a thread of the program ends. */
#ifndef CACHALOT_INTERPOSE_PROCESS_THREAD_EXIT_H
#define CACHALOT_INTERPOSE_PROCESS_THREAD_EXIT_H

/* The functions that an ending thread calls, in this order, up to a NULL. Given once, before any
 * thread is watched. */
void thread_exit_calls(void (*const *functions)(void));

/* The calling thread; as often as wanted. 0: its end will not be seen, the program has taken all
 * keys. */
int thread_exit_watch(void);

#endif
