/* Who finds the lock taken looks a little longer (some 10 us), since it is held for less than a
 * call into the kernel and back takes; then counts itself among the sleepers, and sleeps as long as
 * the word says TAKEN. Whom the giver has woken finds it taken by others that looked meanwhile,
 * mostly: until it runs nobody else is woken, or each that gives the lock would call the kernel;
 * but for so many turns only, since it may be one that gets no processor.
 *
 * Who gives it stores FREE and then looks for sleepers, both plainly: an atomic change each time
 * would cost a hit a tenth. So the look may come before others see the store, and miss a sleeper
 * that counts itself just then, and finds the lock still taken. Whom nobody wakes looks again after
 * a millisecond for each that sleeps: if thousands did so each millisecond, who has the lock would
 * not get to run. */
#include "allocator/base/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allocator/base/policy.h"

/* Looks for a while: 0, and it is ours. */
static int look(struct lock *lock)
{
    for (int i = 0; i < policy.lock_looks; i++)
        if (atomic_load_explicit(&lock->word, memory_order_relaxed) == LOCK_FREE && !lock_try(lock))
            return 0;
    return -1;
}

static void sleep_for(struct lock *lock)
{
    int error = errno; /* the program's */
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

void lock_wake(struct lock *lock)
{
    int error = errno;
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
