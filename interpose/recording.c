#include "interpose/recording.h"

#include "interpose/process.h"
#include "stats/ticks.h"

struct page *recording_page(unsigned devices, const char **problem)
{
    struct page_shape plain = {.devices = devices}, shape = plain;
    shape.events = ticks_are_readable() ? process->config.events : 0;
    struct page *page = page_create(process->config.page_dir, shape, problem);
    if (!shape.events || (page && page->path[0]))
        return page;
    /* A page in its place is worth more than events. */
    const char *another;
    struct page *smaller = page_create(process->config.page_dir, plain, &another);
    int keep = page && (!smaller || !smaller->path[0]);
    struct page *spare = keep ? smaller : page;
    if (spare)
        page_close(spare, 1);
    if (keep)
        return page;
    *problem = another;
    return smaller;
}

void recording_start(void)
{
    struct events *events = page_events(process->page);
    if (process->config.events && !events)
        process_warn("no room for %u events beside the live page: none are recorded",
                     process->config.events);
    domain_record(process->domain, events);
}
