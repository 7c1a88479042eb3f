/* What must be done when a thread of the program ends. */
#ifndef CACHALOT_INTERPOSE_LIFECYCLE_THREAD_EXIT_H
#define CACHALOT_INTERPOSE_LIFECYCLE_THREAD_EXIT_H

/* The calling one; as often as wanted. 0: its end will not be seen, the program has taken all keys. */
int thread_watch(void);

#endif
