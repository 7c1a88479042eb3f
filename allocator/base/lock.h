/* A lock. Without contention, taking it costs one atomic change and giving it one plain store. With
 * contention, threads spin and then sleep (lock.c). Libc's mutex also checks its kind and owner,
 * which would cost a hit that needs the lock 90 instructions. */
#ifndef CACHALOT_ALLOCATOR_BASE_LOCK_H
#define CACHALOT_ALLOCATOR_BASE_LOCK_H

#include <stdatomic.h>
#include <stdint.h>

enum { LOCK_FREE, LOCK_TAKEN };

struct lock {
    _Atomic uint32_t word, sleepers; /* sleepers: threads that sleep or are about to */
    _Atomic uint32_t waking, turns;  /* a woken thread has not run yet; unlocks since its wake */
    uint32_t waited; /* for the holder: a thread has waited for the lock since this was set to 0 */
    void (*_Atomic bell)(void); /* lock_ring_once; counted among the sleepers */
};

/* Whoever next gives the lock back calls `bell` after that, once. The calling thread has the lock, and
 * gives it back by lock_give_quietly. lock_ring_no_more returns 0 if the bell was called. */
void lock_ring_once(struct lock *lock, void (*bell)(void));
int lock_ring_no_more(struct lock *lock);

/* The slow paths. wait: another thread has the lock. wake: a thread may sleep. */
void lock_wait(struct lock *lock);
void lock_wake(struct lock *lock);

/* Takes the lock if it is free. Returns 0, or -1 if a thread has it. */
static inline int lock_try(struct lock *lock)
{
    uint32_t word = LOCK_FREE;
    return atomic_compare_exchange_strong_explicit(&lock->word, &word, LOCK_TAKEN,
                                                   memory_order_acquire, memory_order_relaxed)
               ? 0
               : -1;
}

/* Takes the lock, and waits while another thread has it. The lock is not recursive. */
static inline void lock_take(struct lock *lock)
{
    if (__builtin_expect(lock_try(lock), 0))
        lock_wait(lock);
}

static inline void lock_give_quietly(struct lock *lock)
{
    atomic_store_explicit(&lock->word, LOCK_FREE, memory_order_release);
}

/* Gives the lock back. The calling thread has it. */
static inline void lock_give(struct lock *lock)
{
    lock_give_quietly(lock);
    atomic_signal_fence(memory_order_seq_cst); /* for the compiler alone: head of lock.c */
    if (__builtin_expect(atomic_load_explicit(&lock->sleepers, memory_order_relaxed) != 0, 0))
        lock_wake(lock);
}

#endif
