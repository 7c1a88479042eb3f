/* A wait that is no cancellation point: a thread of the program may be cancelled in any other, and
 * would keep what it holds of ours. */
#ifndef CACHALOT_STATS_OS_PAUSE_H
#define CACHALOT_STATS_OS_PAUSE_H

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Less than a second; sooner when a signal comes. */
static inline void pause_ns(long ns)
{
    syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = ns}, NULL);
}

/* Between two looks whether another thread is done with what takes it no time, once it runs. It may have a
 * lower priority on this processor, and a yield lets nobody run then. `looks`: from 0. */
static inline void pause_look(int looks)
{
    int error = errno; /* the program's */
    if (looks < 100)
        sched_yield();
    else
        pause_ns(50000);
    errno = error;
}

/* Between two tries to read what is being changed: its writer may have lost its processor in the
 * middle. Returns 0 when it is time to give up (some 15 ms): it has died, or hangs. */
static inline int pause_between(int try)
{
    if (try >= 1000)
        pause_ns(20000);
    return try < 1200;
}

#endif
