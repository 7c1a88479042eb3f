/* The parts of the program cachalot-replay: a trace, the allocator, a device made of bookkeeping,
 * what its calls would have cost. Exit codes: 0 done, 1 failed, 2 usage, 3 no or broken trace. */
#ifndef CACHALOT_SCRIPTS_REPLAY_REPLAY_H
#define CACHALOT_SCRIPTS_REPLAY_REPLAY_H

#include "allocator/allocator.h"
#include "allocator/reuse/lane.h"
#include "scripts/replay/trace.h"

enum replay_exit { REPLAY_DONE = 0, REPLAY_FAILED = 1, REPLAY_USAGE = 2, REPLAY_BROKEN = 3 };

/* What a call of the driver costs.  X(name, what it is) */
#define CALL_LIST(X)                                                                               \
    X(alloc, "cuMemAlloc")                                                                         \
    X(free, "cuMemFree")                                                                           \
    X(event_record, "cuCtxRecordEvent")                                                            \
    X(event_query, "cuEventQuery")                                                                 \
    X(event_wait, "cuEventSynchronize")                                                            \
    X(synchronize, "cuCtxSynchronize")                                                             \
    X(range_reserve, "cuMemAddressReserve")                                                        \
    X(chunk_create, "cuMemCreate")                                                                 \
    X(chunk_map, "cuMemMap")                                                                       \
    X(chunk_allow, "cuMemSetAccess")                                                               \
    X(chunk_unmap, "cuMemUnmap")                                                                   \
    X(chunk_release, "cuMemRelease")
enum call_kind {
#define X(name, meaning) CALL_##name,
    CALL_LIST(X)
#undef X
        CALL_KINDS
};
extern const char *const call_names[CALL_KINDS];

#define COST_POINTS 32
struct costs {
    struct cost_line {
        unsigned points; /* 0: no price, the call is counted and costs nothing */
        uint64_t bytes[COST_POINTS], ns[COST_POINTS];
    } line[CALL_KINDS];
};
/* From a file of lines `call,bytes,ns`, or NULL: measured on an H200. Complains on stderr. */
int costs_read(struct costs *costs, const char *path);
void costs_print(const struct costs *costs);
uint64_t costs_of(const struct costs *costs, enum call_kind call, uint64_t bytes);

#define LEDGER_PARTS (1u << 13) /* so few that they stay in the caches */
struct replay_device {
    uint64_t capacity, used, next_address, chunks, ranges;
    struct table segments, mappings;
    const struct costs *costs;
    struct call_sum {
        uint64_t count, failed, bytes, cost_ns;
    } call[CALL_KINDS];
    /* The present one of the trace, from 0; so many later what is submitted is done, or once somebody
     * has waited for what was submitted up to then (from 1). */
    uint64_t operation, behind, waited_for;
    uint64_t cost_ns[LEDGER_PARTS]; /* by parts of the trace, */
    unsigned log2_part;             /* each of that many operations; it grows with the trace */
};
/* Bytes; a few times what any device has, so that our own books stay small, whatever is asked for. */
#define REPLAY_NO_CAPACITY ((uint64_t)1 << 41)
extern const struct device_ops replay_device_ops;
void replay_device_init(struct replay_device *device, uint64_t capacity, const struct costs *costs);
uint64_t replay_cost_since(const struct replay_device *device, uint64_t operation);

struct replay {
    struct options options;
    const char *name, *kind;    /* of the trace; kind: what it was before it was CSV, or NULL */
    uint64_t recorded_reserved; /* most that its own allocator had; 0: not known */
    uint64_t capacity;
    struct costs costs;
    struct replay_device device;
    int device_is_chosen, has_capacity, has_end; /* of a recorded trace; given; of memory */
    struct feed feed;
    uint64_t *address, addresses; /* by slot */
    struct domain *domain;
    struct allocator *allocator;
    struct page *page;
    struct device_stats *stats;
    uint64_t operations, mallocs, frees, empty, recorded_failures;
    uint64_t oom_operation[PAGE_OOMS];
    double began, ended; /* seconds */
};
int replay_print(struct replay *replay); /* the JSON document, on stdout */

#endif
