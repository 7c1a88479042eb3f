/* A device made of bookkeeping, for tests of the allocator: addresses only grow, memory is a
 * number, and fences pass when the test says so. All of its calls may come from several threads. */
#ifndef CACHALOT_TEST_FAKE_DEVICE_H
#define CACHALOT_TEST_FAKE_DEVICE_H

#include <pthread.h>

#include "allocator/base/device.h"

#define FAKE_OOM 2 /* the codes of this driver */
#define FAKE_INVALID 1
#define FAKE_BROKEN 700 /* the context never gets over it */

enum fake_call {
    FAKE_ALLOC,
    FAKE_FREE,
    FAKE_RECORD,
    FAKE_QUERY,
    FAKE_WAIT,
    FAKE_SYNC,
    FAKE_FAILED,
    FAKE_RESERVE,
    FAKE_CREATE,
    FAKE_MAP,
    FAKE_ALLOW,
    FAKE_UNMAP,
    FAKE_RELEASE,
    FAKE_CALLS
};

struct fake_device {
    uint64_t capacity, used;    /* bytes */
    uint64_t most_used;         /* that it ever was */
    uint64_t recorded, passed;  /* marks numbered up to `passed` have passed */
    uint64_t calls[FAKE_CALLS]; /* how often each was made */
    uint64_t failing_alloc;     /* that call of FAKE_ALLOC fails; 0: none */
    enum fake_call failing;     /* its calls numbered so fail once: FAKE_INVALID */
    uint64_t failing_number;
    uint64_t others, looks; /* bytes that other processes have; calls of query_memory */
    uint64_t mapped;        /* mappings of chunks */
    int ranges;             /* of addresses, reserved */
    uint64_t alloc_bytes;   /* size asked for by the last FAKE_ALLOC */
    uint64_t last_timeout;  /* of the last FAKE_WAIT */
    uint64_t events;        /* made */
    int instant;            /* every mark passes at once */
    int busy_elsewhere;     /* no control passes: another process has the device */
    int stuck;              /* no mark passes by waiting: waiting without limit aborts */
    int code[FAKE_CALLS];   /* what each answers, if not 0 */
    /* Called before and after each call takes effect, no lock held: what another thread does
     * meanwhile. */
    void (*meanwhile)(struct fake_device *device, enum fake_call call, int after);
    pthread_mutex_t lock;
};

extern const struct device_ops fake_ops;

void fake_init(struct fake_device *device, uint64_t capacity);

/* Size of the segment at `address`, or 0. */
uint64_t fake_segment(uint64_t address);

/* What is there, as numbers: how many mappings, then address, handle, bytes and access (0 or 1) of each;
 * how many segments, then address and bytes of each. */
void fake_print(const struct fake_device *device);

/* Who calls, from this thread; 0: the thread itself. */
void fake_call_as(uint64_t thread);

/* The clock stands still but for waits; each look at it takes one ns. */
uint64_t fake_clock(void);
void fake_advance(uint64_t ns);

#endif
