/* The caching block allocator: one `struct allocator` for each context, and one `struct domain` for
 * the process, which all of them share.
 *
 * The domain has one lock. It is never held across a call into the device (device.h), so a call
 * that blocks there holds up its own thread only. Callers of these functions do not hold it. A
 * block is found by its address alone, whichever context is current. Sizes are in bytes. Functions
 * return 0, a driver's error code (positive), or a condition of condition.h, unless their comment
 * says otherwise. */
#ifndef CACHALOT_ALLOCATOR_ALLOCATOR_H
#define CACHALOT_ALLOCATOR_ALLOCATOR_H

#include "allocator/base/asked_site.h"
#include "allocator/base/condition.h"
#include "allocator/base/device.h"
#include "allocator/base/options.h"
#include "allocator/thread_cache/own.h"
#include "stats/os/direct.h"
#include "stats/report/snapshot.h"

struct domain;
struct allocator;

/* Makes a domain with a copy of `options`. Returns NULL when the host is out of memory. */
struct domain *domain_create(const struct options *options);

/* Call it before the first allocator: events are noted in `events`, call sites in `sites`, where
 * these are not NULL. */
void domain_record(struct domain *domain, struct events *events, struct sites *sites);

/* Moves what threads noted alone to the events, as far as these have room until more of them is
 * written to the trace. Returns 0, or -1: the lock is busy (its holder may be waiting for just
 * that). */
int domain_take_events(struct domain *domain);

/* Adds an event of memory that no allocator has, where events are recorded. */
void domain_add_event(struct domain *domain, enum event_action action, unsigned device,
                      uint64_t address, uint64_t bytes, unsigned kind, uint32_t site);

/* Makes an allocator for the context `device`, with the name `context` in lanes (lane.h), on device
 * `ordinal` of `total` bytes. It counts into `stats`: one row for each device, which may serve
 * several contexts. Returns NULL when the host is out of memory. */
struct allocator *allocator_create(struct domain *domain, const struct device_ops *ops,
                                   void *device, uint64_t context, unsigned ordinal,
                                   struct device_stats *stats, uint64_t total);

/* Bracket the end of a context: from before it is forgotten or put away, until it is buried.
 * Meanwhile a request that finds no memory waits, and looks once more. */
void domain_end_begins(struct domain *domain);
void domain_end_over(struct domain *domain);

/* Call it before the driver is told to end the context. Gives idle memory back, if another context
 * of the device may need it before the end is over. Waits at most 300 ms for blocks that other
 * threads freed, and as CUDA does for its own frees. */
void allocator_empty(struct allocator *allocator);

/* away 1: the context may be about to end. Until away 0 no thread calls into it for other contexts,
 * as the service thread and their requests do. Returns when threads that do so have left, or after
 * 2 s. */
void allocator_put_away(struct allocator *allocator, int away);

/* Forgets all blocks of a context that is about to go. Calls no driver. Returns how many blocks the
 * program still held. */
uint64_t allocator_forget(struct allocator *allocator);

/* Call it after the driver has ended the context of a forgotten allocator. Gives mapped memory
 * back, which is the process's and would outlive the context. Except: if a call into the context
 * other than a wait for a fence is still under way after 2 s, that memory stays. */
void allocator_bury(struct allocator *allocator);

/* allocator_malloc puts the address of a block of at least `bytes` bytes into *address.
 * allocator_hit does so only if that needs no growth and no wait, else it returns ALLOCATOR_MISS.
 * ALLOCATOR_PASS: the request is the driver's. */
int allocator_malloc(struct allocator *allocator, uint64_t bytes, uint64_t *address);
DIRECT int allocator_hit(struct allocator *allocator, uint64_t bytes, uint64_t *address);

/* Counts a request that was passed on (ALLOCATOR_PASS), and for which the driver had no memory. */
void allocator_refused(struct allocator *allocator, uint64_t bytes);

/* After a request for `bytes` bytes has failed: would it have fitted without a cache, with
 * `available` bytes free on the device? Without a cache each large block takes whole granules of
 * its own. */
int allocator_fits_natively(struct allocator *allocator, uint64_t bytes, uint64_t available);

/* Work that the host may see was submitted to the context: a copy to host memory, or a host
 * function. As with CUDA, the next free waits for the work submitted until now. */
void allocator_note_host_work(struct allocator *allocator);

enum free_kind {
    FREED_NATIVE, /* CUDA's free would wait for all work of the context */
    FREED_ASYNC,  /* CUDA's free would not wait: nor do we without limit, here or later */
    FREED_LATE,   /* the process is ending: only count, touch nothing */
    FREED_IDLE,   /* no work is outstanding anywhere: the block is reusable at once */
};
/* Frees the block at `address`, whichever thread allocated it. Returns 0, ALLOCATOR_UNKNOWN or
 * ALLOCATOR_INVALID. An error of the device that shows here is returned too; the block is gone
 * then, as with CUDA. ALLOCATOR_PASS (option cache:off): the block is off the books, and the caller
 * has the driver free it. */
DIRECT int domain_free(struct domain *domain, uint64_t address, enum free_kind kind);

/* Gives all reusable memory back to the driver; wait: after a wait for pending blocks. Returns
 * bytes. */
uint64_t domain_empty_cache(struct domain *domain, int wait);

/* For other processes: gives idle memory of the device with these statistics back, at least `bytes`
 * if there is so much. Returns bytes. */
uint64_t domain_give(struct domain *domain, const struct device_stats *stats, uint64_t bytes);

/* Could a device have `bytes` bytes free, if its contexts gave all back that the program does not
 * hold? 0 also if there is nothing to give back. is_short: only if it has fewer free now. */
int domain_could_release(struct domain *domain, uint64_t bytes, int is_short);

/* Gives back what has been idle ever since the last call. Call it every options.idle_return
 * seconds. Calls no driver if nothing was idle. */
void domain_return_idle(struct domain *domain);

/* If nothing was requested or freed since the last call: `bell` is called, once, when a thread next
 * takes the lock. All thread caches are stopped until domain_rouse, so that every thread takes it.
 * Returns 0 if something was. One thread calls this and domain_rouse. */
int domain_rest(struct domain *domain, void (*bell)(void));
void domain_rouse(struct domain *domain);

/* Would domain_return_idle find nothing to give back until the next request or free? */
int domain_has_returned_idle(struct domain *domain);

/* Stores the bytes that are free on the device with these statistics. Calls the driver. Returns -1 if
 * no context of it can be asked. */
int domain_query_free(struct domain *domain, const struct device_stats *stats, uint64_t *bytes);

/* Call it after the last stream capture has ended: blocks freed during captures get their fence. */
void domain_captures_ended(struct domain *domain);

/* Makes blocks reusable whose fence has passed. This is the last call into the driver before
 * exit. */
void domain_poll(struct domain *domain);

/* More devices may use the memory of device `ordinal`: has the driver allow what is mapped. Returns
 * 0, or -1 if it refused some. */
int domain_allow(struct domain *domain, unsigned ordinal);

/* Calls `take` for each block, by segment and address, under the lock: it must not call back. */
void domain_walk(struct domain *domain,
                 void (*take)(void *context, const struct snapshot_block *block), void *context);

/* Decides expandable_segments:auto. Call it before the first allocator. */
void domain_decide(struct domain *domain, enum expandable decision);

/* Does this allocator have mapped memory? */
int allocator_maps(const struct allocator *allocator);

#endif
