/* Who finds the lock taken looks a little longer (some us), since it is held for less than a call
 * into the kernel and back takes; then says so (WANTED) and sleeps until the word changes. Who
 * comes out of a sleep cannot know whether others sleep still: it takes the lock as WANTED, at the
 * cost of one wake too many. */
#include "allocator/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOKS 2000

static void futex(struct lock *lock, int operation, uint32_t value)
{
    int error = errno; /* the program's */
    syscall(SYS_futex, &lock->word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
    errno = error;
}

/* Looks for a while: 1, and it is ours. */
static int look(struct lock *lock)
{
    for (int i = 0; i < LOOKS; i++) {
        uint32_t word = atomic_load_explicit(&lock->word, memory_order_relaxed);
        if (word == LOCK_FREE &&
            atomic_compare_exchange_strong_explicit(&lock->word, &word, LOCK_TAKEN,
                                                    memory_order_acquire, memory_order_relaxed))
            return 1;
    }
    return 0;
}

void lock_wait(struct lock *lock)
{
    if (!look(lock))
        while (atomic_exchange_explicit(&lock->word, LOCK_WANTED, memory_order_acquire) !=
               LOCK_FREE)
            futex(lock, FUTEX_WAIT, LOCK_WANTED);
    lock->waited = 1;
}

void lock_wake(struct lock *lock)
{
    futex(lock, FUTEX_WAKE, 1);
}
