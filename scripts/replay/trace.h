/* Reading traces, for cachalot-replay: lines become operations on slots, in a thread of their own,
 * so that the allocator never waits for text. */
#ifndef CACHALOT_SCRIPTS_REPLAY_TRACE_H
#define CACHALOT_SCRIPTS_REPLAY_TRACE_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "stats/page/layout.h"

/* Numbers by numbers; no key is there twice, and values are not 0. */
struct table {
    struct table_entry {
        uint64_t key, value;
    } * entry;
    uint64_t count, size; /* size: a power of two, at least twice the count */
};
int table_put(struct table *table, uint64_t key, uint64_t value); /* 0; 1: is there; -1: no room */
uint64_t table_take(struct table *table, uint64_t key);           /* its value, now out; 0: none */

struct operation {
    uint64_t bytes; /* of a malloc */
    uint32_t slot;  /* a small number, used again once it is free */
    /* EMPTY: malloc or free of nothing; FAILURE: a malloc that failed then; NONE: no operation */
    enum operation_kind { OP_MALLOC, OP_FREE, OP_EMPTY, OP_FAILURE, OP_NONE } kind;
};

#define TRACE_BUFFER (64 * 1024)
struct trace {
    int fd, rmm, at_end;
    int recorded;             /* by CACHALOT_TRACE: no text; line is then the number of an event */
    int device;               /* of a recorded trace; -1: that of its first event */
    uint64_t others, missing; /* events of other devices; that were never written */
    struct {
        uint64_t events, bytes, peak;
    } uncached[UNCACHED_KINDS]; /* memory that the cache did not serve, by kind */
    uint64_t line, bytes_read;
    char *begin, *end;    /* whole lines that are in the buffer */
    char *filled, *added; /* up to here there is text; the newline that its last line lacked */
    char buffer[TRACE_BUFFER + 2];
};
void trace_init(struct trace *trace, int fd);

/* When there is no line left in the buffer. 1: now there are some; 0: that was all; -1: errno. */
int trace_fill(struct trace *trace);

/* The next line, of which there must be one. NULL, or what is wrong with line `trace->line`. */
const char *trace_next(struct trace *trace, struct operation *operation, uint64_t *id);

/* The same for a recorded trace; the first bytes of a file tell. */
int trace_is_recorded(const char *text, size_t length);
int recorded_fill(struct trace *trace);
const char *recorded_next(struct trace *trace, struct operation *operation, uint64_t *id);

#define BATCH_OPERATIONS 1024 /* few enough to stay in the caches */
#define BATCHES 8
struct batch {
    struct operation operation[BATCH_OPERATIONS];
    unsigned count;
    int is_last;
    const char *problem;  /* of `line`; the operations before it are here */
    uint64_t line, bytes; /* of the trace, up to its end */
    uint32_t slots;       /* all slots up to here are below this */
};
struct feed {
    struct trace trace;
    struct table live; /* id: slot + 1 */
    uint32_t *spare, spares, room, slots;
    struct batch batch[BATCHES];
    uint64_t made, used; /* batches */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
};
int feed_start(struct feed *feed, int fd); /* 0 or an error's number */

/* The next batch, until feed_done gives it back; none follows the last one. */
const struct batch *feed_next(struct feed *feed);
void feed_done(struct feed *feed);
void feed_end(struct feed *feed); /* after the last */

#endif
