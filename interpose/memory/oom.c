#include "interpose/memory/oom.h"

#include "interpose/call_sites/stack.h"
#include "interpose/context/device_ops.h"
#include "interpose/context/group_limit.h"
#include "interpose/context/neighbours.h"
#include "interpose/process/process.h"

struct device_stats oom_numbers(const struct context *context)
{
    struct device_stats stats;
    stats_gather(&stats, &context->row->stats, process.page->cache, PAGE_CACHES,
                 (unsigned)context->device);
    return stats;
}

/* Fills the next place of the page. Its time, which the caller sets last, makes it whole. */
static struct page_oom *begin(const struct context *context, uint64_t bytes, unsigned kind)
{
    struct page *page = process.page;
    uint64_t available = 0, total, n = atomic_fetch_add(&page->oom_count, 1);
    struct page_oom *event = &page->oom[n % PAGE_OOMS];
    event->device = event->allocated_bytes = event->active_bytes = event->reserved_bytes = 0;
    event->reusable_bytes = event->largest_allocatable_bytes = event->device_free_bytes = 0;
    event->memory_limit_bytes = event->native_would_fit = 0;
    event->refused = event->kind = event->group_limit_bytes = event->group_bytes = 0;
    event->neighbours = event->neighbours_live_bytes = event->neighbours_idle_bytes = 0;
    event->requested_bytes = bytes;
    event->site = site_place(domain_asked_where());
    if (process.sites && !event->site)
        event->site = call_sites_now(kind, context ? (unsigned)context->device : SITE_DEVICES);
    if (!context)
        return event;
    const struct device_stats now = oom_numbers(context), *stats = &now;
    driver_memory(context, &available, &total);
    event->device = (uint64_t)context->device;
    event->allocated_bytes = stats_current_all(stats, STAT_allocated_bytes);
    event->active_bytes = stats_current_all(stats, STAT_active_bytes);
    event->reserved_bytes = stats_current_all(stats, STAT_reserved_bytes);
    event->reusable_bytes = stats_get(stats, COUNTER_reusable_bytes);
    event->largest_allocatable_bytes = stats_get(stats, COUNTER_largest_allocatable_bytes);
    event->device_free_bytes = available;
    event->memory_limit_bytes = stats_get(stats, COUNTER_memory_limit_bytes);
    event->group_limit_bytes = stats_get(stats, COUNTER_group_limit_bytes);
    uint64_t room = group_limit_room(context, 0);
    if (event->group_limit_bytes && room <= event->group_limit_bytes)
        event->group_bytes = event->group_limit_bytes - room;
    neighbours_note(context, event);
    return event;
}

static void end(struct page_oom *event)
{
    atomic_store(&event->time_ns, driver_ops.now_ns() - process.page->start_monotonic_ns);
}

void oom_note(const struct context *context, uint64_t bytes)
{
    struct page_oom *event = begin(context, bytes, 0);
    uint64_t room = group_limit_room(context, 0);
    process_inside++;
    event->native_would_fit = (uint64_t)allocator_fits_natively(
        context->allocator, bytes,
        room < event->device_free_bytes ? room : event->device_free_bytes);
    process_inside--;
    end(event);
}

void oom_note_uncached(const struct context *context, uint64_t bytes, enum uncached_kind kind)
{
    struct page_oom *event = begin(context, bytes, 1U + kind);
    event->kind = kind + 1;
    end(event);
}

void oom_note_refused(const struct context *context, uint64_t bytes, uint64_t number,
                      enum uncached_kind kind)
{
    struct page_oom *event = begin(context, bytes, 1U + kind);
    event->refused = number;
    event->kind = kind + 1;
    end(event);
}
