/* make_page DIRECTORY WHAT: a program with a page, for the tests of report and command.
 *
 * It fills the page with plausible numbers, prints its path, and then does WHAT: `hang` (until
 * killed), `exit` (leaves the page), `serve` (answers requests), `mute` (lives, answers nothing),
 * `report` (writes the exit report, then leaves), `exec` (becomes `sleep`) or `busy` (hits, waits,
 * and leaks a MiB now and then).
 */
#include "stats/page/page.h"
#include "stats/output/path_pattern.h"
#include "stats/output/report_file.h"

#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void request(struct device_stats *stats, uint64_t bytes, uint64_t rounded,
                    enum stat_pool pool)
{
    stats_begin(stats);
    stats_add(stats, STAT_active_bytes, pool, rounded);
    stats_add(stats, STAT_active, pool, 1);
    stats_add(stats, STAT_allocation, pool, 1);
    stats_add(stats, STAT_allocated_bytes, pool, rounded);
    stats_add(stats, STAT_requested_bytes, pool, bytes);
    stats_histogram(stats, bytes, 1);
    stats_note_peaks(stats);
    stats_end(stats);
}

static void release(struct device_stats *stats, uint64_t bytes, uint64_t rounded,
                    enum stat_pool pool)
{
    stats_begin(stats);
    stats_subtract(stats, STAT_allocation, pool, 1);
    stats_subtract(stats, STAT_allocated_bytes, pool, rounded);
    stats_subtract(stats, STAT_requested_bytes, pool, bytes);
    stats_subtract(stats, STAT_active, pool, 1);
    stats_subtract(stats, STAT_active_bytes, pool, rounded);
    stats_histogram(stats, bytes, -1);
    stats_end(stats);
}

static void fill_device(struct page_device *device)
{
    struct device_stats *stats = &device->stats;
    snprintf(device->name, sizeof device->name, "NVIDIA Test");
    snprintf(device->uuid, sizeof device->uuid, "GPU-00000000-0000-0000-0000-000000000000");
    device->total_bytes = UINT64_C(80) << 30;
    device->used = 1;
    stats_add(stats, STAT_segment, LARGE_POOL, 1);
    stats_add(stats, STAT_reserved_bytes, LARGE_POOL, 20 << 20);
    stats_add(stats, STAT_segment, SMALL_POOL, 1);
    stats_add(stats, STAT_reserved_bytes, SMALL_POOL, 2 << 20);
    stats_count(stats, COUNTER_num_device_alloc, 2);
    request(stats, 1000, 1024, SMALL_POOL);
    request(stats, 3 << 20, 3 << 20, LARGE_POOL);
    request(stats, 1000, 1024, SMALL_POOL);
    release(stats, 1000, 1024, SMALL_POOL);
    stats_count(stats, COUNTER_num_hits, 1);
    stats_set(stats, COUNTER_reusable_bytes, (19 << 20) - 1024);
    stats_set(stats, COUNTER_largest_allocatable_bytes, 17 << 20);
}

static void fill_series(struct page *page)
{
    static const struct series_look looks[] = {
        {0, 1024, 2 << 20, UINT64_MAX},
        {500000000, (3 << 20) + 2048, 22 << 20, UINT64_C(70) << 30},
        {1000000000, (3 << 20) + 1024, 22 << 20, UINT64_C(60) << 30},
    };
    stat_set(&page_series(page, 0)->device, 1);
    for (unsigned i = 0; i < sizeof looks / sizeof *looks; i++)
        series_add(page->own.series, page_series(page, 0), &looks[i]);
}

static void fill(struct page *page)
{
    page->state = PAGE_RUNNING;
    fill_device(page_device(page, 0));
    fill_series(page);
    page->coverage[COVERAGE_init_calls] = 1;
    page->coverage[COVERAGE_dlsym_lookups] = 7;
    snprintf(page->config[0].name, sizeof page->config[0].name, "max_split_size_mb");
    snprintf(page->config[0].value, sizeof page->config[0].value, "unlimited");
    snprintf(page->config[0].source, sizeof page->config[0].source, "default");
    page->config_count = 1;
    page_warn(page, "a warning with \xff and \033[31m in it");
    page_warn(page, "a warning with \xff and \033[31m in it");
    page->oom[0].requested_bytes = 1 << 30;
    page->oom[0].allocated_bytes = 1 << 20;
    page->oom[0].active_bytes = 3 << 20;
    for (unsigned i = 0; i < 20; i++)
        events_add(page_events(page), i % EVENT_ACTIONS, 0, 4096 * i, 512, 500, i % 2);
    page->oom_count = 1;
    const char *session = getenv("CACHALOT_SESSION");
    snprintf(page->session, sizeof page->session, "%s", session ? session : "");
    page_tell_all(page);
}

static long futex(_Atomic uint32_t *word, int operation, uint32_t value)
{
    return syscall(SYS_futex, (void *)word, operation, value, NULL, NULL, 0);
}

static void answer(struct page *page, uint32_t bits)
{
    struct snapshot snapshot = {.page = page, .with_segments = (bits & REQUEST_BLOCKS) != 0};
    struct report_options options = {
        .kind = REPORT_REQUEST, .exit_reason = "running", .exit_code = -1};
    char path[sizeof page->answer] = "emptied";
    page->sequence++;
    PAGE_TELL(page, sequence);
    if ((bits & REQUEST_REPORT) && report_write(&snapshot, &options, path, sizeof path) != 0)
        snprintf(path, sizeof path, "error: no report");
    memcpy(page->answer, path, sizeof page->answer);
    page->answered++;
    futex(&page->answered, FUTEX_WAKE, 1 << 30);
}

static void serve(struct page *page)
{
    for (;;) {
        uint32_t bits = atomic_exchange(&page->request, 0);
        if (bits != 0)
            answer(page, bits);
        else
            futex(&page->request, FUTEX_WAIT, 0);
    }
}

static void be_busy(struct device_stats *stats)
{
    for (unsigned i = 1;; i++) {
        request(stats, 2 << 20, 2 << 20, LARGE_POOL);
        stats_begin(stats);
        stats_count(stats, COUNTER_num_hits, 1);
        stats_end(stats);
        release(stats, 2 << 20, 2 << 20, LARGE_POOL);
        if (i % 50 == 0) {
            stats_begin(stats);
            stats_add(stats, STAT_reserved_bytes, LARGE_POOL, 1 << 20);
            stats_count(stats, COUNTER_num_fence_waits, 1);
            stats_count(stats, COUNTER_fence_wait_ns, 5000000);
            stats_end(stats);
            request(stats, 1 << 20, 1 << 20, LARGE_POOL);
        }
        usleep(1000);
    }
}

static int act(struct page *page, const char *what)
{
    if (strcmp(what, "serve") == 0)
        serve(page);
    if (strcmp(what, "busy") == 0)
        be_busy(&page_device(page, 0)->stats);
    if (strcmp(what, "exec") == 0)
        execlp("sleep", "sleep", "100", (char *)NULL);
    if (strcmp(what, "exit") == 0)
        return 0;
    if (strcmp(what, "report") == 0) {
        struct snapshot snapshot = {.page = page};
        struct report_options options = {.kind = REPORT_EXIT, .exit_reason = "exit"};
        char path[1280];
        int error = report_write(&snapshot, &options, path, sizeof path);
        page->state = PAGE_REPORTED;
        PAGE_TELL(page, state);
        printf("%s\n", error == 0 ? path : strerror(-error));
        return error != 0;
    }
    for (;;)
        pause();
}

static const char *environment(const char *name)
{
    return getenv(name);
}

int main(int argc, char **argv)
{
    const char *problem;
    if (argc < 3)
        return 2;
    struct page *page = page_create(
        argv[1], (struct page_shape){.devices = 2, .events = 16, .shown = 16}, &problem);
    if (page == NULL)
        return 1;
    fill(page);
    const char *pattern = getenv("CACHALOT_OUTPUT");
    if (report_expand(page, pattern, environment, page->output, sizeof page->output, &problem) != 0)
        fprintf(stderr, "%s\n", problem);
    page_tell_all(page);
    printf("%s\n", page->path);
    fflush(stdout);
    return act(page, argv[2]);
}
