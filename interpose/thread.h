/* What must be done when a thread of the program ends. */
#ifndef CACHALOT_INTERPOSE_THREAD_H
#define CACHALOT_INTERPOSE_THREAD_H

void thread_watch(void); /* the calling one; as often as wanted */

#endif
