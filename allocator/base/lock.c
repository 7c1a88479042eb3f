/* A thread that finds the lock taken spins for about 10 us (policy.lock_looks): a critical section
 * is shorter than a system call. Then it counts itself among the sleepers and sleeps on a futex
 * while the word is TAKEN.
 *
 * Unlock wakes at most one sleeper at a time. A woken thread usually loses the race against a
 * spinner, and waking another before it has run would cost a system call per unlock. After
 * policy.lock_turns unlocks another sleeper is woken anyway, in case the first was not scheduled.
 *
 * Unlock stores FREE and then loads `sleepers` without a fence: an atomic exchange would slow a hit
 * by a tenth. So the load may run before other threads see the store. It can then miss a thread that
 * counts itself at that moment and still finds the lock taken. Therefore every sleep has a timeout:
 * with n sleepers n ms, at most policy.lock_sleep_ms. It grows with n because thousands of threads
 * that wake every millisecond would keep the holder of the lock from running.
 *
 * A bell counts as a sleeper. So an unlock that calls one takes the slow path, and all others pay
 * nothing for it. */
#include "allocator/base/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allocator/base/policy.h"

/* Spins for up to policy.lock_looks loads. Returns 0 if it has taken the lock, else -1. */
static int look(struct lock *lock)
{
    for (int i = 0; i < policy.lock_looks; i++)
        if (atomic_load_explicit(&lock->word, memory_order_relaxed) == LOCK_FREE && !lock_try(lock))
            return 0;
    return -1;
}

static void sleep_for(struct lock *lock)
{
    int error = errno; /* the program's: restored at the end */
    long sleepers = (long)atomic_fetch_add(&lock->sleepers, 1) + 1;
    struct timespec limit = {
        .tv_nsec = 1000000 * (sleepers < policy.lock_sleep_ms ? sleepers : policy.lock_sleep_ms)};
    do {
        syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, LOCK_TAKEN, &limit, NULL, 0);
        atomic_store_explicit(&lock->waking, 0, memory_order_relaxed);
    } while (look(lock));
    atomic_fetch_sub(&lock->sleepers, 1);
    errno = error;
}

void lock_wait(struct lock *lock)
{
    if (look(lock))
        sleep_for(lock);
    lock->waited = 1;
}

void lock_ring_once(struct lock *lock, void (*bell)(void))
{
    atomic_store_explicit(&lock->bell, bell, memory_order_relaxed);
    atomic_fetch_add(&lock->sleepers, 1);
}

static void (*take_bell(struct lock *lock))(void)
{
    void (*bell)(void) = atomic_load_explicit(&lock->bell, memory_order_relaxed);
    if (bell && (bell = atomic_exchange(&lock->bell, NULL)))
        atomic_fetch_sub(&lock->sleepers, 1);
    return bell;
}

int lock_ring_no_more(struct lock *lock)
{
    return take_bell(lock) != NULL;
}

void lock_wake(struct lock *lock)
{
    int error = errno;
    void (*bell)(void) = take_bell(lock);
    if (bell)
        bell();
    uint32_t turns = atomic_load_explicit(&lock->turns, memory_order_relaxed) + 1;
    int skip =
        atomic_load_explicit(&lock->waking, memory_order_relaxed) && turns < policy.lock_turns;
    atomic_store_explicit(&lock->turns, skip ? turns : 0, memory_order_relaxed);
    if (skip)
        return;
    atomic_store_explicit(&lock->waking, 1, memory_order_relaxed);
    if (syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) < 1)
        atomic_store_explicit(&lock->waking, 0, memory_order_relaxed);
    errno = error;
}
