/* Threads of ours: all signals are blocked in them, and their stack has room for a report. */
#ifndef CACHALOT_INTERPOSE_PROCESS_OWN_THREAD_H
#define CACHALOT_INTERPOSE_PROCESS_OWN_THREAD_H

#include <pthread.h>

/* As pthread_create. */
int own_thread_create(pthread_t *thread, void *(*function)(void *), void *argument);

/* One that nobody joins. Returns 0 or an error's number. */
int own_thread_detached(void *(*function)(void *));

/* The first and the last thing that such a thread does. */
void own_thread_begins(const char *name);
void own_thread_ends(void);

/* How many have begun and not ended. */
int own_thread_count(void);

#endif
