/* The library's own threads. They block all signals, and their stack is large enough to write a
 * report. */
#ifndef CACHALOT_INTERPOSE_PROCESS_OWN_THREAD_H
#define CACHALOT_INTERPOSE_PROCESS_OWN_THREAD_H

#include <pthread.h>

/* As pthread_create. */
int own_thread_create(pthread_t *thread, void *(*function)(void *), void *argument);

/* Creates a detached thread. Returns 0 or an error number. */
int own_thread_detached(void *(*function)(void *));

/* The first and the last call of such a thread. */
void own_thread_begins(const char *name);
void own_thread_ends(void);

/* The number of these threads that are running. */
int own_thread_count(void);

#endif
