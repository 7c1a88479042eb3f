/* The parts of the program cachalot-replay: a trace, the allocator, a device made of bookkeeping,
 * what its calls would have cost. Exit codes: 0 done, 1 failed, 2 usage, 3 no or broken trace. */
#ifndef CACHALOT_SCRIPTS_REPLAY_H
#define CACHALOT_SCRIPTS_REPLAY_H

#include "allocator/allocator.h"
#include "allocator/lane.h"

enum replay_exit { REPLAY_DONE = 0, REPLAY_FAILED = 1, REPLAY_USAGE = 2, REPLAY_BROKEN = 3 };

/* Numbers by numbers, neither key nor value given twice; values are not 0. */
struct table {
    struct table_entry {
        uint64_t key, value;
    } * entry;
    uint64_t count, size; /* size: a power of two, at least twice the count */
};
int table_put(struct table *table, uint64_t key, uint64_t value); /* 0; 1: is there; -1: no room */
uint64_t table_take(struct table *table, uint64_t key);           /* its value, now out; 0: none */

/* What a call of the driver costs.  X(name, what it is) */
#define CALL_LIST(X)                                                                               \
    X(alloc, "cuMemAlloc")                                                                         \
    X(free, "cuMemFree")                                                                           \
    X(event_record, "cuCtxRecordEvent")                                                            \
    X(event_query, "cuEventQuery")                                                                 \
    X(event_wait, "cuEventSynchronize")                                                            \
    X(synchronize, "cuCtxSynchronize")
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

#define LEDGER_PARTS (1u << 20)
struct replay_device {
    uint64_t capacity, used, next_address;
    struct table segments;
    const struct costs *costs;
    struct call_sum {
        uint64_t count, failed, bytes, cost_ns;
    } call[CALL_KINDS];
    uint64_t operation; /* the present one of the trace, from 0 */
    uint64_t *cost_ns;  /* by parts of the trace, */
    unsigned log2_part; /* each of that many operations; it grows with the trace */
};
#define REPLAY_NO_CAPACITY ((uint64_t)1 << 46)
extern const struct device_ops replay_device_ops;
int replay_device_init(struct replay_device *device, uint64_t capacity, const struct costs *costs);
uint64_t replay_cost_since(const struct replay_device *device, uint64_t operation);

struct operation {
    /* EMPTY: malloc or free of nothing; FAILURE: a malloc that failed then; NONE: no operation */
    enum operation_kind { OP_MALLOC, OP_FREE, OP_EMPTY, OP_FAILURE, OP_NONE } kind;
    uint64_t id, bytes; /* bytes: of a malloc */
};

#define TRACE_BUFFER (256 * 1024)
struct trace {
    int fd, rmm, at_end;
    uint64_t line, bytes_read;
    char *begin, *end; /* whole lines that are in the buffer */
    char *filled;      /* up to here there is text */
    char buffer[TRACE_BUFFER + 2];
};
/* Sets the file up; then for more lines: 1: there are some, 0: that was all, -1: errno says why. */
void trace_init(struct trace *trace, int fd);
int trace_fill(struct trace *trace);
/* The next operation of a filled trace; NULL, or what is wrong with line `trace->line`. */
const char *trace_next(struct trace *trace, struct operation *operation);

struct replay {
    struct options options;
    const char *name; /* of the trace, for messages */
    uint64_t capacity;
    struct costs costs;
    struct replay_device device;
    struct trace trace;
    struct table live; /* id: address */
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
