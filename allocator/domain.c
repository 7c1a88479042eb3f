/* What concerns all allocators of a process at once. */
#include <stddef.h>

#include "allocator/allocator.h"
#include "allocator/attainable.h"
#include "allocator/base/policy.h"
#include "allocator/check.h"
#include "allocator/last_freed.h"
#include "allocator/mapping/create.h"
#include "allocator/mapping/release.h"
#include "allocator/reuse/fence.h"
#include "allocator/release.h"
#include "allocator/thread_cache/locked.h"
#include "stats/events/events.h"
#include "allocator/state/enter.h"

static struct slab slab_of(struct domain *domain, size_t item_bytes)
{
    return (struct slab){.item_bytes = item_bytes, .metadata = &domain->metadata};
}

struct domain *domain_create(const struct options *options)
{
    struct metadata metadata = {0};
    struct domain *domain = metadata_take(&metadata, sizeof *domain);
    if (!domain)
        return NULL;
    domain->metadata = metadata;
    domain->listed.low = CLAIM_KINDS - 1;
    if (page_map_begin(&domain->listed, &domain->metadata))
        return NULL;
    /* A thread that makes room, and is called back by the driver, must not wait for itself. */
    domain->pressure = (pthread_mutex_t)PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    domain->options = *options;
    domain->dedicated = options->ipc == IPC_DEDICATED;
    domain->last_freed.put = last_freed_put;
    domain->is_valid = allocator_is_valid;
    domain->blocks = slab_of(domain, sizeof(struct block));
    domain->blocks.kept_from = offsetof(struct block, claim);
    domain->blocks.apart = 37; /* blocks that several threads take at first share no cache line */
    domain->segment_slab = slab_of(domain, sizeof(struct segment));
    domain->fences = slab_of(domain, sizeof(struct fence));
    domain->allocators = slab_of(domain, sizeof(struct allocator));
    domain->points = slab_of(domain, sizeof(struct point));
    domain->cache_slab = slab_of(domain, sizeof(struct thread_cache));
    domain->cache_slab.kept_from = offsetof(struct thread_cache, taken);
    return domain;
}

/* Returns a number that no living allocator has. Forgotten allocators have no blocks. */
static uint16_t unused_number(const struct domain *domain)
{
    uint16_t number = 0;
    for (const struct allocator *a = domain->first; a;)
        if (a->number == number) {
            number++;
            a = domain->first;
        } else {
            a = a->next;
        }
    return number;
}

struct allocator *allocator_create(struct domain *domain, const struct device_ops *ops,
                                   void *device, uint64_t context, unsigned ordinal,
                                   struct device_stats *stats, uint64_t total)
{
    uint64_t limit = options_limit(&domain->options, total);
    domain_lock(domain);
    struct allocator *a = slab_take(&domain->allocators);
    domain_unlock(domain);
    if (a &&
        !(a->shared.transfer = metadata_take(NULL, CACHE_STEPS * sizeof *a->shared.transfer))) {
        domain_lock(domain);
        slab_give(&domain->allocators, a);
        domain_unlock(domain);
        return NULL;
    }
    if (a) {
        a->domain = domain;
        a->ops = ops;
        a->device = device;
        a->context = context;
        a->ordinal = ordinal;
        a->stats = stats;
        a->limit = limit;
        a->capacity = total < limit ? total : limit;
        struct arena *arena = NULL;
        if (domain->options.expandable != EXPANDABLE_FALSE && domain->options.cache)
            arena = arena_create(a);
        domain_lock(domain);
        int lost = arena && arena_begin(a, arena); /* the host has no memory */
        domain_unlock(domain);
        if (lost)
            arena_destroy(a, arena);
        domain_lock(domain);
        a->number = unused_number(domain);
        a->next = domain->first;
        a->host_work.unseen = domain->lane.past;
        domain->first = a;
        stats_begin(stats);
        stats_set(stats, COUNTER_memory_limit_bytes, limit == UINT64_MAX ? 0 : limit);
        uint64_t split = domain->options.max_split_size;
        stats_set(stats, COUNTER_max_split_size_bytes, split == UINT64_MAX ? 0 : split);
        stats_end(stats);
        domain_unlock(domain);
    }
    return a;
}

void domain_record(struct domain *domain, struct events *events, struct sites *sites)
{
    domain->events = events;
    domain->sites = sites;
}

int domain_take_events(struct domain *domain)
{
    if (lock_try(&domain->lock))
        return -1;
    if (domain->events)
        events_take(domain->events, 0);
    domain_unlock(domain);
    return 0;
}

void domain_add_event(struct domain *domain, enum event_action action, unsigned device,
                      uint64_t address, uint64_t bytes, unsigned kind, uint32_t site)
{
    domain_lock(domain);
    if (domain->events)
        events_add(domain->events, action, device, address, bytes, kind, site);
    domain_unlock(domain);
}

static uint64_t for_each(struct domain *domain, uint64_t (*act)(struct allocator *, unsigned),
                         unsigned value)
{
    uint64_t sum = 0;
    domain_lock(domain);
    for (struct allocator *a = domain->first, *next; a; a = next) {
        stats_begin(a->stats);
        if (allocator_visit(a)) {
            sum += act(a, value);
            allocator_visit_over(a);
        }
        next = a->next; /* allocators are never unmapped: a forgotten one still leads on */
        stats_end(a->stats);
    }
    domain_unlock(domain);
    return sum;
}

static uint64_t empty(struct allocator *a, unsigned wait)
{
    return release_of(a, UINT64_MAX, wait ? DEVICE_FOREVER : 0,
                      wait ? policy.pressure_wait_ns : policy.idle_wait_ns);
}

int domain_could_release(struct domain *domain, uint64_t bytes, int is_short)
{
    int could = 0;
    domain_lock(domain);
    for (struct allocator *a = domain->first, *next; a && !could; a = next) {
        stats_begin(a->stats);
        if (allocator_visit(a)) {
            could = attainable_by_release(a, bytes, is_short);
            allocator_visit_over(a);
        }
        next = a->next;
        stats_end(a->stats);
    }
    domain_unlock(domain);
    return could;
}

uint64_t domain_empty_cache(struct domain *domain, int wait)
{
    return for_each(domain, empty, wait != 0);
}

int allocator_maps(const struct allocator *a)
{
    domain_lock(a->domain);
    int maps = a->arena != NULL;
    domain_unlock(a->domain);
    return maps;
}

uint64_t domain_give(struct domain *domain, const struct device_stats *stats, uint64_t bytes)
{
    uint64_t given = 0;
    domain_lock(domain);
    for (struct allocator *a = domain->first, *next; a && given < bytes; a = next) {
        if (a->stats == stats && !a->life.forgotten) {
            uint64_t more = release_of(a, bytes - given, 0, policy.moment_wait_ns);
            stats_begin(a->stats);
            stats_count(a->stats, COUNTER_given_bytes, more);
            stats_end(a->stats);
            given += more;
        }
        next = a->next;
    }
    domain_unlock(domain);
    return given;
}

static uint64_t return_idle(struct allocator *a, unsigned unused)
{
    (void)unused;
    return release_unused(a);
}

void domain_return_idle(struct domain *domain)
{
    for_each(domain, return_idle, 0);
}

static uint64_t uses_of(const struct domain *domain)
{
    uint64_t uses = 0;
    for (const struct allocator *a = domain->first; a; a = a->next)
        uses += a->mallocs + a->frees;
    for (const struct thread_cache *cache = domain->caches; cache; cache = cache->next)
        uses += stat_get(&cache->sequence);
    return uses;
}

int domain_rest(struct domain *domain, void (*bell)(void))
{
    lock_take(&domain->lock);
    uint64_t uses = uses_of(domain);
    int rests = uses == domain->rest_uses;
    domain->rest_uses = uses;
    if (rests) {
        domain->rests = 1;
        thread_caches_stop(domain, NULL);
        lock_ring_once(&domain->lock, bell);
    }
    lock_give_quietly(&domain->lock);
    return rests;
}

void domain_rouse(struct domain *domain)
{
    if (!domain->rests)
        return;
    domain->rests = 0;
    lock_ring_no_more(&domain->lock);
    lock_take(&domain->lock);
    thread_caches_go_on(domain, NULL);
    domain_unlock(domain);
}

int domain_has_returned_idle(struct domain *domain)
{
    int has = 1;
    lock_take(&domain->lock);
    for (const struct allocator *a = domain->first; a; a = a->next)
        has &= a->release.rested || a->life.error || a->life.forgotten || a->fences.no_events;
    domain_unlock(domain);
    return has;
}

int domain_query_free(struct domain *domain, const struct device_stats *stats, uint64_t *bytes)
{
    int code = -1;
    uint64_t total;
    lock_take(&domain->lock);
    for (struct allocator *a = domain->first, *next; a && code; a = next) {
        if (a->stats == stats && allocator_visit(a)) {
            stats_begin(a->stats);
            allocator_call(a);
            code = a->ops->query_memory(a->device, bytes, &total);
            allocator_return(a);
            stats_end(a->stats);
            allocator_visit_over(a);
        }
        next = a->next;
    }
    domain_unlock(domain);
    return code ? -1 : 0;
}

void domain_decide(struct domain *domain, enum expandable decision)
{
    domain_lock(domain);
    domain->options.expandable = decision;
    domain_unlock(domain);
}

static uint64_t allow(struct allocator *a, unsigned ordinal)
{
    return a->ordinal == ordinal && arena_allow(a);
}

int domain_allow(struct domain *domain, unsigned ordinal)
{
    return for_each(domain, allow, ordinal) ? -1 : 0;
}

static uint64_t poll(struct allocator *a, unsigned unused)
{
    (void)unused;
    fence_poll(a, 1);
    return 0;
}

static uint64_t flush(struct allocator *a, unsigned unused)
{
    (void)unused;
    a->fences.captures_ended++;
    fence_flush_deferred(a, 0);
    return 0;
}

void domain_captures_ended(struct domain *domain)
{
    for_each(domain, flush, 0);
}

void domain_poll(struct domain *domain)
{
    for_each(domain, poll, 0);
}
