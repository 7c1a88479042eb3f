/* Orders of calls that are right natively and easy to hang: what hang.c tries, and how. */
#ifndef GPU_HANG_H
#define GPU_HANG_H

#include <cuda.h>

enum kind { LEGACY, BLOCKING, FREE, PER_THREAD, KINDS };
enum feeder { HOST, KERNEL, FUNCTION, FEEDERS };
enum prior { NO_PRIOR, ON_LANE, ON_OTHER, ON_BOTH, PRIORS };
/* What one thread does: frees an old block, takes a new one, spins, feeds, uses the new one. */
enum step { FREE_OLD, TAKE, SPIN, FEED, USE, FREE_NEW, STEPS };

struct order {
    enum kind lane, other; /* streams: of the spinning kernel, and of the feeder */
    enum feeder feeder;
    enum prior prior; /* the stream that used the old block before */
    int use_on_other; /* the stream that uses the new block */
    int threads;      /* 1, or 2: the second frees, takes, uses and frees in between */
    int count;        /* of the steps */
    char step[12];    /* an enum step each */
    char second[12];  /* is it the second thread's? */
};

/* The n-th order; 0 behind the last. */
int order_make(unsigned n, struct order *order);
/* Would it end natively? By the rules of streams, and because cuMemFree waits for all work. */
int order_ends(const struct order *order);
/* Orders that hang natively for one reason have one class; at most 63. */
unsigned order_class(const struct order *order);
void order_print(unsigned n, const struct order *order);

#endif
