/* Policy: every number of the allocator that somebody chose, in one table.
 *
 * A number stands here with its default, unit and family, what it trades, and where it was measured. Tests and
 * cachalot-replay set other values before the first allocator is made (policy_set); the library reads no other
 * source. A new number needs a row that shows its gain on traces set aside (test/replay/policy_table.py prints rows).
 *
 * What follows from the layout of a struct stays with that struct: sizes of arrays, bits of a word. */
#ifndef CACHALOT_ALLOCATOR_BASE_POLICY_H
#define CACHALOT_ALLOCATOR_BASE_POLICY_H

#include <stdint.h>

#include "allocator/base/units.h"

/* PyTorch's rules (c10/cuda/CUDACachingAllocator.cpp), held to the byte by `unit traces`: no choice of this project.
 * X(name, value, PyTorch's name) */
#define POLICY_PYTORCH(X)                                                                          \
    X(PYTORCH_SMALL_SIZE, MIB, "kSmallSize")                                                       \
    X(PYTORCH_SMALL_BUFFER, 2 * MIB, "kSmallBuffer")                                               \
    X(PYTORCH_MIN_LARGE_ALLOC, 10 * MIB, "kMinLargeAlloc")                                         \
    X(PYTORCH_LARGE_BUFFER, 20 * MIB, "kLargeBuffer")                                              \
    X(PYTORCH_ROUND_LARGE, 2 * MIB, "kRoundLarge")                                                 \
    X(PYTORCH_MIN_BLOCK, 512, "kMinBlockSize")

#define PYTORCH_SMALL_SIZE MIB
#define PYTORCH_SMALL_BUFFER (2 * MIB)
#define PYTORCH_MIN_LARGE_ALLOC (10 * MIB)
#define PYTORCH_LARGE_BUFFER (20 * MIB)
#define PYTORCH_ROUND_LARGE (2 * MIB)
#define PYTORCH_MIN_BLOCK 512

/* X(type, name, default, unit, family, what it trades, where it was measured).
 * Unit "1/n" is a divisor: a part of n of something. tried: test/replay/tried.md. record: test/gpu/RECORD.md. */
/* clang-format off */
#define POLICY_LIST(X) \
    /* How large a handle is. */ \
    X(uint64_t, handle_most, 16 * MIB, "bytes", "handles", "largest handle, and the request from which on the driver is asked what is free: calls of the driver against memory held by a part of a handle", "footprint.md") \
    X(uint64_t, handle_part, 192, "1/n", "handles", "handle as a part of the memory: calls against memory", "tried") \
    X(uint64_t, loss_part, 34, "1/n", "handles", "part of what is reserved that may be lost between blocks; then handles are small, and the best hole serves: calls and time against memory", "tried") \
    X(uint64_t, device_chunks_least, 1024, "chunks", "handles", "handles are smaller on a device that has fewer of them", "footprint.md") \
    /* Which hole serves a request. */ \
    X(uint64_t, apart_most, MIB / 4, "bytes", "fit", "largest block that never lies among large ones: memory against chunks held by a small block", "tried") \
    X(uint32_t, fit_slots, 1024, "slots", "fit", "slots of which the best hole serves: memory against 0.1 to 0.3 us a request", "tried") \
    X(uint32_t, fit_rest_part, 16, "1/n", "fit", "part of the block that the best hole may leave over", "tried") \
    /* Which large blocks share chunks. */ \
    X(int, score_most, 16, "sizes", "packing", "new sizes in a row that are remembered, and what a size outweighs that its blocks outlive", "tried") \
    X(uint64_t, noted_part, 512, "1/n", "packing", "part of the device from which on a new size is a sign", "tried") \
    X(uint64_t, noted_least, 32 * MIB, "bytes", "packing", "the least of that", "tried") \
    X(uint64_t, few_blocks, 16, "blocks", "packing", "smaller blocks that lose nothing beside the large ones", "tried") \
    X(uint64_t, varied_most, 384 * MIB, "bytes", "packing", "largest block that lies in small handles where blocks outlive their sizes", "tried") \
    X(uint64_t, varied_sizes, 48, "sizes", "packing", "new sizes after which one is looked at: do its blocks live on?", "tried") \
    X(uint32_t, varied_late, 512, "requests", "packing", "requests within which a size that comes again says nothing", "tried") \
    /* Moving memory. */ \
    X(uint64_t, keep, 4, "1", "mapping", "addresses in use, in times the memory: unmap calls against page tables", "footprint.md") \
    /* Ordinary segments. */ \
    X(uint64_t, pressed_part, 3, "1/n", "segments", "part of the device that is left when segments are no longer cut", "tried") \
    X(uint64_t, dedicated_part, 8, "1/n", "segments", "part that a segment which other processes may map may be too large", "none") \
    /* What a thread holds and counts without the lock. */ \
    X(uint64_t, cache_least, 2 * MIB, "bytes", "thread caches", "what a cache may hold at least: requests that take the lock against memory", "benchmarks") \
    X(uint64_t, cache_most, 10 * MIB, "bytes", "thread caches", "and at most", "benchmarks") \
    X(uint64_t, cache_part, 16, "1/n", "thread caches", "and as a part of the peak of small blocks", "benchmarks") \
    X(int64_t, cache_blocks, 256, "blocks", "thread caches", "blocks that a cache may hold", "benchmarks") \
    X(uint64_t, alone_least, 8 * MIB, "bytes", "thread caches", "what a thread counts without telling: locks against exact peaks", "benchmarks") \
    X(uint64_t, alone_most, 32 * MIB, "bytes", "thread caches", "and at most, where threads wait", "benchmarks") \
    X(uint64_t, alone_part, 16, "1/n", "thread caches", "and as a part of the peak of small blocks", "benchmarks") \
    X(int, spills, 8, "sizes", "thread caches", "sizes that one request takes out of a full cache: its length against refusals", "benchmarks") \
    /* Between caches and pool. */ \
    X(uint64_t, transfer_tenths, 6, "1/10", "transfer cache", "what the transfer cache holds, of what the caches may hold", "benchmarks") \
    X(int64_t, transfer_untold, MIB, "bytes", "transfer cache", "what a cache gives or takes without telling", "benchmarks") \
    X(uint64_t, transfer_least, 8 * 1024, "bytes", "transfer cache", "what a smaller block counts for", "benchmarks") \
    X(int, transfer_tries, 100, "tries", "transfer cache", "looks at a list that another thread holds", "benchmarks") \
    X(uint64_t, trim_blocks, 6, "blocks", "transfer cache", "blocks that one free moves to the pool", "benchmarks") \
    X(int, trim_looks, 16, "sizes", "transfer cache", "sizes that it looks for them at", "benchmarks") \
    X(uint64_t, stock_blocks, 8, "blocks", "transfer cache", "blocks that one request takes from the pool", "benchmarks") \
    /* When caches hold more, and when they are looked through. */ \
    X(uint64_t, pace, 1024, "requests", "cache size", "requests by the lock between two looks at the clock, or at a full device: calls against delay", "record") \
    X(uint64_t, pace_fast_ns, 4000000, "ns", "cache size", "a faster pace lets caches hold more: locks against memory", "record") \
    X(uint64_t, pace_brisk_ns, 200000000, "ns", "cache size", "the same where threads do not contend", "record") \
    X(uint64_t, pace_slow, 5, "1", "cache size", "a pace so many times slower lets them hold half", "record") \
    X(uint64_t, pace_part, 64, "1/n", "cache size", "what they may hold more, of the peak of all blocks", "record") \
    X(unsigned, contended, 64, "requests", "cache size", "requests without a wait after which threads do not contend", "benchmarks") \
    X(uint64_t, look_again_part, 8, "1/n", "cache size", "growth after which contending threads' caches are looked through again", "benchmarks") \
    X(uint64_t, looks, 32, "looks", "cache size", "looks within a pace from which on a segment is cheaper", "record") \
    X(uint64_t, looks_cached_part, 512, "1/n", "cache size", "cached part of the memory up to which a segment is taken instead", "record") \
    X(uint64_t, looks_left_part, 16, "1/n", "cache size", "part of the device that must be left for that", "record") \
    X(uint64_t, yield_ns, 7050, "ns/MiB", "cache size", "price of emptying caches, against that of growing", "record") \
    /* How long a freed block is waited for. */ \
    X(uint64_t, slack_ns, 300000, "ns", "fences", "work ahead of the host from which on a wait costs nothing: steps against memory", "record") \
    X(uint64_t, brief_wait_ns, 2000000, "ns", "fences", "wait for another thread's free, which might wait for this thread", "record") \
    X(uint64_t, fat_part, 4, "1/n", "fences", "pending part of what is in use from which on frees wait: throughput against memory", "simulated device") \
    X(uint64_t, fat_least, 32 * MIB, "bytes", "fences", "the least of that", "simulated device") \
    X(unsigned, crowd_turns, 16, "turns", "fences", "requests of one thread in a row that end a crowd", "simulated device") \
    X(uint64_t, poll_again, 8, "requests", "fences", "requests between two polls in vain", "benchmarks") \
    X(unsigned, lane_patience, 64, "seals", "fences", "seals between two tries to return to a lane", "benchmarks") \
    /* What is done before a request fails, and when a context ends. */ \
    X(uint64_t, pressure_wait_ns, 10000000000, "ns", "pressure", "wait where the alternative is out of memory", "none") \
    X(unsigned, idle_looks, 32, "looks", "pressure", "looks within which growth after idle memory went back makes later returns wait for longer, and how long at most: calls against memory for others", "unit") \
    X(int, pressure_rounds, 4, "rounds", "pressure", "tries while other threads free, or take what was given back", "none") \
    X(uint64_t, idle_wait_ns, 2000000000, "ns", "pressure", "wait for what can wait until another time", "none") \
    X(uint64_t, moment_wait_ns, 100000000, "ns", "pressure", "wait for idle memory that goes back by age, before a context ends, or before a block must share chunks", "none") \
    X(uint64_t, end_look_ns, 1000000, "ns", "pressure", "time between two looks at a context that ends, within idle_wait_ns", "none") \
    X(int, mark_tries, 1000, "tries", "pressure", "context events tried where the driver's error passes", "none") \
    /* Pinned memory. */ \
    X(uint64_t, pinned_part, 2, "1/n", "pinned", "part of the host's memory that may be reserved: driver calls against memory for others", "none") \
    X(uint64_t, host_part, 16, "1/n", "pinned", "part of the host's memory that must be available, or idle pinned memory goes back", "none") \
    /* The allocator's lock. */ \
    X(int, lock_looks, 8000, "looks", "lock", "looks before a thread sleeps (10 us): processor time against system calls", "benchmarks") \
    X(long, lock_sleep_ms, 500, "ms", "lock", "longest sleep until a thread looks again", "benchmarks") \
    X(uint32_t, lock_turns, 256, "turns", "lock", "unlocks until another sleeper is woken: system calls against a stall", "benchmarks")
/* clang-format on */

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): in the order of the table */
struct policy {
#define X(type, name, value, unit, family, trades, measured) type name;
    POLICY_LIST(X)
#undef X
};

extern struct policy policy;

/* What arrays and bytes can hold of a number. */
#define POLICY_VARIED_SIZES 128
#define POLICY_HANDLE_MOST (32 * MIB)

/* A row of the table; prices of device.h are rows, too. */
struct policy_row {
    const char *name, *unit, *family, *trades, *measured;
    uint64_t initial; /* the default */
    int is_fixed;     /* of PyTorch: cannot be set */
};
unsigned policy_count(void);
const struct policy_row *policy_row(unsigned i);

/* Sets the number of that name. Returns 0, or -1: there is none, or `value` is 0 or too large for it. */
int policy_set(const char *name, uint64_t value);

/* Back to the defaults. */
void policy_reset(void);

#endif
