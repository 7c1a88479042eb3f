#include "interpose/lifecycle/service_report.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "interpose/lifecycle/own_caches.h"
#include "interpose/memory/uncached.h"
#include "interpose/lifecycle/sampler.h"
#include "interpose/process/process.h"
#include "interpose/stream/submit.h"
#include "stats/output/report_file.h"

static struct WIPED writing {
    pthread_mutex_t lock;
    /* Where the exit report is: when it is written again, it goes there. */
    char exit_path[sizeof((struct page *)NULL)->answer];
} writing;
static const struct wiped wiped WIPED_ENTRY = {&writing, sizeof writing};

struct rows {
    struct snapshot_block *row;
    size_t count, room;
};

static void count_row(void *context, const struct snapshot_block *block)
{
    (void)block;
    ((struct rows *)context)->count++;
}

static void take_row(void *context, const struct snapshot_block *block)
{
    struct rows *rows = context;
    if (rows->count < rows->room)
        rows->row[rows->count++] = *block;
}

static void walk(void (*take)(void *, const struct snapshot_block *), struct rows *rows)
{
    domain_walk(process.domain, take, rows);
    uncached_walk(take, rows);
}

/* Lists the blocks as they are now, in memory of our own; row is NULL if there was none. */
static struct rows list_blocks(void)
{
    struct rows rows = {0};
    if (process_inside)
        return rows;
    walk(count_row, &rows);
    rows.room = rows.count + 1024; /* for blocks made between the two walks */
    void *memory = mmap(NULL, rows.room * sizeof *rows.row, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    rows.count = 0;
    rows.row = memory == MAP_FAILED ? NULL : memory;
    if (rows.row)
        walk(take_row, &rows);
    return rows;
}

int service_report_write(enum report_kind kind, int with_segments)
{
    struct page *page = process.page;
    submit_say_unseen();
    atomic_fetch_add(&page->sequence, 1);
    PAGE_TELL(page, sequence);
    struct rows rows = list_blocks(); /* first: it takes what threads have noted into the page */
    own_caches_warn();
    sampler_look();
    struct page *copy = page_copy(page);
    const struct events *events = page_events(page); /* events are shown on the map of segments */
    int list = with_segments || (events && events->shown);
    const struct snapshot snapshot = {copy, rows.row, rows.count, list};
    const struct report_options options = {
        .kind = kind,
        .exit_reason = kind == REPORT_EXIT ? "exit" : "running",
        .exit_code = kind == REPORT_EXIT ? atomic_load(&page->exit_code) : -1,
        .output = kind == REPORT_EXIT && writing.exit_path[0] ? writing.exit_path : NULL,
    };
    char path[sizeof page->answer];
    int code = copy ? report_write(&snapshot, &options, path, sizeof path) : -ENOMEM;
    if (code)
        snprintf(page->answer, sizeof page->answer, "error: cannot write %.900s: %s", page->output,
                 strerror(-code));
    else
        snprintf(page->answer, sizeof page->answer, "%s", path);
    if (code == 0 && kind == REPORT_EXIT && strcmp(path, "/dev/null"))
        memcpy(writing.exit_path, path, sizeof path);
    if (code)
        process_warn("the report could not be written: %s", strerror(-code));
    if (rows.row)
        munmap(rows.row, rows.room * sizeof *rows.row);
    if (copy)
        page_close(copy, 0);
    return code;
}

void service_report_lock(void)
{
    pthread_mutex_lock(&writing.lock);
}

int service_report_lock_before(const struct timespec *limit)
{
    return pthread_mutex_timedlock(&writing.lock, limit);
}

void service_report_unlock(void)
{
    pthread_mutex_unlock(&writing.lock);
}
