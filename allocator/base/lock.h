/* A lock that costs one atomic change to take and a plain store to give when nobody else wants it,
 * and sleeps when somebody has it. Libc's mutex looks at its kind and owner besides: 90
 * instructions of a hit that needs the lock. */
#ifndef CACHALOT_ALLOCATOR_BASE_LOCK_H
#define CACHALOT_ALLOCATOR_BASE_LOCK_H

#include <stdatomic.h>
#include <stdint.h>

enum { LOCK_FREE, LOCK_TAKEN };

struct lock {
    _Atomic uint32_t word, sleepers; /* sleepers: threads that sleep, or are about to */
    _Atomic uint32_t waking, turns;  /* one was woken that does not run yet; turns since then */
    uint32_t waited; /* its holder's: somebody had to wait for it since this was set to 0 */
};

/* The long ways: somebody has it; somebody may sleep. */
void lock_wait(struct lock *lock);
void lock_wake(struct lock *lock);

/* 0, or -1: somebody has it. */
static inline int lock_try(struct lock *lock)
{
    uint32_t word = LOCK_FREE;
    return atomic_compare_exchange_strong_explicit(&lock->word, &word, LOCK_TAKEN,
                                                   memory_order_acquire, memory_order_relaxed)
               ? 0
               : -1;
}

static inline void lock_take(struct lock *lock)
{
    if (__builtin_expect(lock_try(lock), 0))
        lock_wait(lock);
}

static inline void lock_give(struct lock *lock)
{
    atomic_store_explicit(&lock->word, LOCK_FREE, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst); /* lock.c says why no more is needed */
    if (__builtin_expect(atomic_load_explicit(&lock->sleepers, memory_order_relaxed) != 0, 0))
        lock_wake(lock);
}

#endif
