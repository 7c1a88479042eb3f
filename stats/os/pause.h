/* Waits that are no cancellation points. The program may cancel its thread in any other wait, and the
 * thread would keep the locks of ours that it holds. */
#ifndef CACHALOT_STATS_OS_PAUSE_H
#define CACHALOT_STATS_OS_PAUSE_H

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Waits less than a second; a signal ends the wait early. */
static inline void pause_ns(long ns)
{
    syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = ns}, NULL);
}

/* The wait between two looks at what another thread is about to finish. That thread may have a lower
 * priority on this processor, where a yield does not let it run: after 100 looks this sleeps.
 * `looks` counts from 0. */
static inline void pause_look(int looks)
{
    int error = errno; /* the program's */
    if (looks < 100)
        sched_yield();
    else
        pause_ns(50000);
    errno = error;
}

/* The wait between two tries to read what a writer is changing: the writer may have lost its
 * processor in a change. Returns 0 after about 15 ms: the writer has died or hangs. */
static inline int pause_between(int try)
{
    if (try >= 1000)
        pause_ns(20000);
    return try < 1200;
}

#endif
