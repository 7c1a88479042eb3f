/* What the files of the random stress share. Each worker is a thread with blocks, streams and
 * graphs of its own in one or two contexts; all threads share some streams and a mailbox. All that
 * it does is right natively: work on one block is in order, and cuMemFree waits for all work of the
 * context. */
#ifndef PRELOAD_STRESS_H
#define PRELOAD_STRESS_H

#include "driver_case.h"

enum { LEGACY, LEGACY_TOO, PER_THREAD, SHARED, OWN = SHARED + 4, STREAMS = OWN + 4 };
enum { HELD = 24, GRAPHS = 3, SIDES = 2 };

struct block {
    CUdeviceptr address; /* 0: none */
    size_t bytes;
    int touched;   /* work on it may be outstanding: on stream `home`, or before the event */
    unsigned home; /* a stream of the side */
    CUevent event;
};

struct graph {
    CUgraphExec exec;
    struct block block;
};

struct side { /* one context */
    CUcontext context;
    CUstream stream[STREAMS];
    struct block held[HELD];
    struct graph graph[GRAPHS];
    unsigned char *seen; /* memory of the host */
};

struct worker {
    uint64_t random;
    int alone;          /* no other worker at any time */
    unsigned capturing; /* bits of streams that ordinary work must leave alone */
    struct side side[SIDES], *at;
};

static inline unsigned dice(struct worker *w, unsigned sides)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(w->random >> 33) % sides;
}

static inline int is_blocking(unsigned stream) /* the legacy stream is neither */
{
    return stream == PER_THREAD || (stream >= SHARED && stream % 2 == 0);
}

/* stress_work.c */
unsigned pick(struct worker *w); /* a stream: mostly the phase's, or any */
void next_phase(struct worker *w);
int may_capture(void);
void order(struct worker *w, struct block *block, unsigned stream);
void touch(struct worker *w, struct block *block);
void release(struct worker *w, struct block *block);
void leave_stream(struct worker *w, unsigned stream);
void forget_order(struct worker *w); /* all is done */
void do_nothing(struct worker *w);
void write_of_the_other_side(struct worker *w, struct block *block);

/* stress_graphs.c */
void use_graph(struct worker *w, void (*meanwhile)(struct worker *));
void drop_graph(struct worker *w, struct graph *graph);
void synchronize(struct worker *w);

#endif
