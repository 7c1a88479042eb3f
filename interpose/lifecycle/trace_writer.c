#include "interpose/lifecycle/trace_writer.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "interpose/call_sites/stack.h"
#include "interpose/process/private_files.h"
#include "interpose/process/process.h"
#include "interpose/process/own_thread.h"
#include "stats/os/pause.h"
#include "stats/os/ticks.h"
#include "stats/output/trace.h"

#define WRITE_EVERY_NS 100000000
#define MOST_TRIES 100 /* of 1 ms */

static struct WIPED trace {
    pthread_mutex_t lock;
    int whole; /* nothing more may be written */
} trace;
static const struct wiped wiped WIPED_ENTRY = {&trace, sizeof trace};

/* A page of that shape in place of `page` if it has a file, which `page` has not. */
static struct page *or_smaller(struct page *page, struct page_shape shape, const char **problem)
{
    const char *another;
    struct page *smaller = page_create(config_page_dir(&process.config), shape, &another);
    int keep = page && (!smaller || !smaller->path[0]);
    struct page *spare = keep ? smaller : page;
    if (spare)
        page_close(spare, 1);
    if (keep)
        return page;
    *problem = another;
    return smaller;
}

/* Where there is no room for all, a sample of call sites goes first, then events: a page in its place
 * is worth more. */
struct page *trace_writer_page(unsigned devices, const char **problem)
{
    struct page_shape shape = {.devices = devices, .sites = process.config.sites};
    if (ticks_are_readable()) {
        shape.shown = shape.events = process.config.events;
        if (*process.config.trace && shape.events < TRACE_EVENTS)
            shape.events = TRACE_EVENTS;
    }
    struct page *page = page_create(config_page_dir(&process.config), shape, problem);
    if (shape.sites == SITES_BY_BYTES && !(page && page->path[0])) {
        shape.sites = 0;
        page = or_smaller(page, shape, problem);
    }
    if ((shape.events || shape.sites) && !(page && page->path[0]))
        page = or_smaller(page, (struct page_shape){.devices = devices}, problem);
    return page;
}

static void open_trace(void *unused)
{
    (void)unused;
    char path[sizeof process.page->trace];
    config_trace_path(&process.config, process.page, path, sizeof path, process_warn);
    int error = path[0] ? trace_open(process.page, path) : 0;
    if (error)
        process_warn("nothing is traced: %.150s: %s", path, strerror(-error));
    else if (path[0] && strcmp(path, process.page->trace))
        process_warn("%.60s is taken: traced in %.130s", path, process.page->trace);
}

void trace_writer_start(void)
{
    struct events *events = page_events(process.page);
    if ((process.config.events || *process.config.trace) && !events)
        process_warn("no room for events beside the live page: none are recorded or traced");
    if (events && *process.config.trace)
        files_run(open_trace, NULL);
    process.sites = process.page->own.sites;
    if (process.config.sites && process.config.sites != SITES_BY_BYTES && !process.sites)
        process_warn("no room for call sites beside the live page: none are recorded");
    if (process.sites)
        call_sites_start();
    int wanted = events && (events->shown || process.page->trace[0]);
    domain_record(process.domain, wanted ? events : NULL, process.sites);
}

/* Writes the events recorded until now. Returns 0 if the trace ends here. */
static int write_trace(enum events_trace end)
{
    int error = trace_write(process.page, end, 0);
    if (error)
        process_warn("the trace ends here: %s", trace_problem(error));
    return error == 0;
}

/* Writes when many events wait, and every WRITE_EVERY_NS, so that a killed process loses little if
 * its page is not harvested. */
static void *serve(void *unused)
{
    struct events *events = page_events(process.page);
    own_thread_begins("cachalot-trace");
    files_apart();
    for (int more = 1; more;) {
        static const struct timespec pause = {.tv_nsec = WRITE_EVERY_NS};
        uint32_t seen = atomic_load(&events->wake);
        pthread_mutex_lock(&trace.lock);
        if (!trace.whole)
            domain_take_events(process.domain);
        if (!trace.whole && stat_get(&events->written) != stat_get(&events->count))
            more = write_trace(TRACE_ON);
        more &= !trace.whole;
        pthread_mutex_unlock(&trace.lock);
        syscall(SYS_futex, &events->wake, FUTEX_WAIT, seen, &pause, NULL, 0);
    }
    own_thread_ends();
    return unused;
}

void trace_writer_serve(void)
{
    if (!process.page->trace[0])
        return;
    int error = own_thread_detached(serve);
    if (error)
        process_warn("no thread for the trace (%s): it ends here", strerror(error));
    if (error)
        trace_write(process.page, TRACE_STOPPED, 0);
}

/* Takes the events that threads still hold back. There is room for them, since the trace was just
 * written; a thread that holds a lock may have waited for that room. */
static void take_the_last(void)
{
    for (int i = 0; domain_take_events(process.domain) && i < MOST_TRIES; i++)
        pause_ns(1000000);
}

int trace_writer_end(int for_good)
{
    struct timespec limit;
    int fails = 0;
    if (!process.page->trace[0])
        return 0;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 2;
    if (pthread_mutex_timedlock(&trace.lock, &limit))
        return 0; /* the disk hangs: `cachalot harvest` finds the rest in the page */
    if (!trace.whole && stat_get(&page_events(process.page)->trace) == TRACE_ON) {
        fails = !write_trace(TRACE_ON);
        if (for_good && !fails) {
            take_the_last();
            fails = !write_trace(TRACE_ENDED);
        }
    }
    trace.whole |= for_good || fails;
    pthread_mutex_unlock(&trace.lock);
    return fails;
}
