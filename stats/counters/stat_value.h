/* A number that one thread at a time changes and any thread reads: a relaxed atomic. */
#ifndef CACHALOT_STATS_COUNTERS_STAT_VALUE_H
#define CACHALOT_STATS_COUNTERS_STAT_VALUE_H

#include <stdatomic.h>
#include <stdint.h>

typedef _Atomic uint64_t stat_value; /* the one typedef: an attribute, not a struct */

static inline uint64_t stat_get(const stat_value *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static inline void stat_set(stat_value *value, uint64_t to)
{
    atomic_store_explicit(value, to, memory_order_relaxed);
}

/* One writer at a time, so it needs no locked instruction. On x86-64 it is one instruction; gcc makes
 * three of an atomic load and store. */
static inline __attribute__((always_inline)) void stat_increase(stat_value *value, uint64_t n)
{
#if defined(__x86_64__)
    __asm__("addq %1, %0" : "+m"(*(uint64_t *)value) : "er"(n) : "cc");
#else
    stat_set(value, stat_get(value) + n);
#endif
}

/* The same, after all that the thread has written before. x86-64 keeps the order of stores. */
static inline __attribute__((always_inline)) void stat_release(stat_value *value, uint64_t n)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    __asm__ volatile("addq %1, %0" : "+m"(*(uint64_t *)value) : "er"(n) : "cc", "memory");
#else
    atomic_store_explicit(value, stat_get(value) + n, memory_order_release);
#endif
}

/* n may be negative: a free in one thread may be counted before the allocation in another. */
static inline void stat_raise_to(stat_value *peak, uint64_t n)
{
    if ((int64_t)(n - stat_get(peak)) > 0)
        stat_set(peak, n);
}

#endif
