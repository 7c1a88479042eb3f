/* The caching block allocator: one `struct allocator` per context, a process's in one `struct
 * domain`.
 *
 * One lock for the domain. It is never held across a call into the device (device.h), so whatever
 * blocks there blocks only the thread that called. A block is found by address alone, whichever
 * context is current. Sizes in bytes. Functions return 0, a driver's error code (positive), or one
 * of the conditions below.
 */
#ifndef CACHALOT_ALLOCATOR_ALLOCATOR_H
#define CACHALOT_ALLOCATOR_ALLOCATOR_H

#include "allocator/base/asked_site.h"
#include "allocator/base/condition.h"
#include "allocator/base/device.h"
#include "allocator/base/options.h"
#include "allocator/thread_cache/own.h"
#include "stats/report/snapshot.h"

struct domain;
struct allocator;

/* NULL when the host is out of memory. `options` is copied. */
struct domain *domain_create(const struct options *options);

/* Before the first allocator: what happens is noted in `events` and `sites`, where not NULL.
 */
void domain_record(struct domain *domain, struct events *events, struct sites *sites);

/* What threads noted alone goes to the events, as far as these have room until more of them is
 * written to the trace. -1: the lock is busy (its holder may wait for just that). */
int domain_take_events(struct domain *domain);

/* An allocator for the context `device`, named `context` in lanes (lane.h), device `ordinal`,
 * of `total` bytes, booking into `stats` (one row per device, which may serve several contexts).
 * NULL when the host is out of memory. */
struct allocator *allocator_create(struct domain *domain, const struct device_ops *ops,
                                   void *device, uint64_t context, unsigned ordinal,
                                   struct device_stats *stats, uint64_t total);

/* Around the end of a context, from before it is forgotten or put away until it is buried: a request
 * that finds no memory meanwhile waits, and looks once more. */
void domain_end_begins(struct domain *domain);
void domain_end_over(struct domain *domain);

/* Before the driver is told to end its context: gives back what is idle, if another context of the
 * device may need it before that is over. Waits 300 ms at most for what other
 * threads freed; for its own frees it waits as natively. */
void allocator_empty(struct allocator *allocator);

/* Its context may be about to end, or was not: meanwhile nobody calls into it for others, as the
 * service thread does, and requests in other contexts. Returns when those who do have left, or after
 * 2 s. */
void allocator_put_away(struct allocator *allocator, int away);

/* Forgets all blocks of a context that is going; calls no driver. Returns how many the program
 * still held. */
uint64_t allocator_forget(struct allocator *allocator);

/* After the driver ended the context of a forgotten allocator: mapped memory is the process's, and
 * would outlive it. It does where a call into the context, but a wait for a fence, is still under way after 2 s. */
void allocator_bury(struct allocator *allocator);

/* A block of at least `bytes`. allocator_hit never grows nor waits: 0 or ALLOCATOR_MISS. */
int allocator_malloc(struct allocator *allocator, uint64_t bytes, uint64_t *address);
int allocator_hit(struct allocator *allocator, uint64_t bytes, uint64_t *address);

/* A request that was passed on (ALLOCATOR_PASS), and for which the driver had no memory. */
void allocator_refused(struct allocator *allocator, uint64_t bytes);

/* After a request for `bytes` has failed: would it have fitted without a cache, when the driver has
 * `available` bytes free? Then each large block takes whole granules of its own. */
int allocator_fits_natively(struct allocator *allocator, uint64_t bytes, uint64_t available);

/* Work that the host may see (a copy to its memory, a function of its own) was submitted to the
 * context: the next free waits for what was submitted until now, as natively. */
void allocator_note_host_work(struct allocator *allocator);

enum free_kind {
    FREED_NATIVE, /* natively this free waits for all work of the context */
    FREED_ASYNC,  /* natively it waits for nothing: nor do we, here or later, without limit */
    FREED_LATE,   /* the process is ending: touch nothing, only count */
};
/* Takes back the block at `address`, whoever allocated it. An error of the device that shows here
 * is returned; the block is then gone, as natively. ALLOCATOR_PASS (FREED_ASYNC only): the block is
 * off the books, the driver is to free it. */
int domain_free(struct domain *domain, uint64_t address, enum free_kind kind);

/* Gives all reusable memory back to the driver, after waiting for what is pending if `wait`.
 * Returns bytes. */
uint64_t domain_empty_cache(struct domain *domain, int wait);

/* Gives back what was idle ever since the last call, where the device is short of memory. No call
 * of the driver if there is nothing. */
void domain_relieve(struct domain *domain);

/* After the last stream capture ended: frees made during captures get their fence. */
void domain_captures_ended(struct domain *domain);

/* Books blocks whose fence has passed; the last call into the driver before exit. */
void domain_poll(struct domain *domain);

/* More devices may use the memory of device `ordinal`: has the driver allow what is mapped. -1: it has
 * refused some. */
int domain_allow(struct domain *domain, unsigned ordinal);

/* Calls `take` for every block, by segment and address, under the lock: it must not call back. */
void domain_walk(struct domain *domain,
                 void (*take)(void *context, const struct snapshot_block *block), void *context);

/* Decides expandable_segments:auto, before the first allocator. */
void domain_decide(struct domain *domain, enum expandable decision);

/* Does this allocator have mapped memory? */
int allocator_maps(const struct allocator *allocator);

#endif
