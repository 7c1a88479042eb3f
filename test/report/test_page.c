/* Unit tests of page, warnings, reading a page, the output pattern and the document. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "stats/page/page.h"
#include "stats/os/proc.h"
#include "stats/output/path_pattern.h"
#include "stats/report/document.h"
#include "stats/report/value.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char directory[] = "/dev/shm/cachalot-unit-XXXXXX";

static struct page *create(void)
{
    const char *problem;
    struct page *page = page_create(directory, (struct page_shape){.devices = 2}, &problem);
    assert_non_null(page);
    assert_null(problem);
    return page;
}

static unsigned open_files(void)
{
    unsigned count = 0;
    DIR *listing = opendir("/proc/self/fd");
    while (readdir(listing) != NULL)
        count++;
    closedir(listing);
    return count;
}

static void test_page_has_a_private_file_and_leaves_nothing_open(void **state)
{
    (void)state;
    struct stat status;
    unsigned before = open_files();
    mode_t mask = umask(0777);
    struct page *page = create();
    umask(mask);
    assert_int_equal(open_files(), before);
    assert_int_equal(stat(page->path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    assert_int_equal(status.st_blocks * 512 >= status.st_size, 1); /* no holes */
    assert_true(page_is_alive(page, page->path));
    page_close(page, 1);
}

static void test_generations(void **state)
{
    (void)state;
    struct page *first = create(), *second = create();
    assert_int_equal(first->generation, 0);
    assert_int_equal(second->generation, 1);
    page_close(second, 1);
    page_close(first, 1);
}

static void test_child_does_not_have_it(void **state)
{
    (void)state;
    struct page *page = create();
    unsigned char resident;
    pid_t child = fork();
    if (child == 0)
        _exit(mincore(page, 1, &resident) == 0); /* ENOMEM: not mapped */
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    page_close(page, 1);
}

static void expect_nameless(const char *where)
{
    const char *problem;
    struct page *page = page_create(where, (struct page_shape){.devices = 1}, &problem);
    assert_non_null(page);
    assert_non_null(problem);
    assert_string_equal(page->path, "");
    page->exit_code = 3; /* can be written */
    page_close(page, 1);
}

static void test_bad_directories_fall_back(void **state)
{
    (void)state;
    char open_to_all[sizeof directory + 8];
    snprintf(open_to_all, sizeof open_to_all, "%s/open", directory);
    mkdir(open_to_all, 0700);
    chmod(open_to_all, 0777);
    expect_nameless(open_to_all);
    expect_nameless("/proc/self/exe");
    expect_nameless("/proc/none");
    rmdir(open_to_all);
}

static void test_file_size_limit_is_no_signal(void **state)
{
    (void)state;
    struct rlimit before, limit = {4096, RLIM_INFINITY};
    getrlimit(RLIMIT_FSIZE, &before);
    limit.rlim_max = before.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
    expect_nameless(directory);
    setrlimit(RLIMIT_FSIZE, &before);
}

static void test_fields_describe_every_number(void **state)
{
    (void)state;
    struct page *page = create();
    const struct page_field *fields = (const void *)((char *)page + page->field_offset);
    struct device_stats *stats = &page_device(page, 1)->stats;
    stats_add(stats, STAT_allocated_bytes, LARGE_POOL, 4711);
    int found = 0;
    for (uint32_t i = 0; i < page->field_count; i++) {
        uint64_t at = fields[i].offset + (uint64_t)fields[i].stride;
        assert_true(at < page->field_offset);
        if (strcmp(fields[i].name, "device.allocated_bytes.allocated.large_pool") == 0)
            found += *(stat_value *)((char *)page + at) == 4711;
    }
    assert_int_equal(found, 1);
    page_close(page, 1);
}

static void test_warnings_are_counted_and_lost_beyond_the_room(void **state)
{
    (void)state;
    struct page *page = create();
    page_warn(page, "%s", "same");
    page_warn(page, "%s", "same");
    assert_int_equal(page->warning[0].count, 2);
    for (int i = 0; i < PAGE_WARNINGS; i++)
        page_warn(page, "warning %d", i);
    assert_int_equal(page->warnings_lost, 1);
    page_close(page, 1);
}

static void test_old_dead_pages_are_removed_and_live_ones_not(void **state)
{
    (void)state;
    struct page *page = create();
    char old[sizeof page->path + 8];
    snprintf(old, sizeof old, "%s/1.1.0.page", directory);
    page->pid = UINT32_MAX; /* nobody */
    page->start_realtime_ns = 1;
    page_tell_all(page);
    assert_int_equal(link(page->path, old), 0);
    page_remove_old(directory, 60);
    assert_int_equal(access(old, F_OK), 0); /* its file is new */
    const struct timespec long_ago[2] = {{1, 0}, {1, 0}};
    assert_int_equal(utimensat(AT_FDCWD, old, long_ago, 0), 0);
    page_remove_old(directory, UINT32_MAX);
    assert_int_equal(access(old, F_OK), 0);
    page->pid = (uint64_t)getpid();
    page_tell_all(page);
    page_remove_old(directory, 60);
    assert_int_equal(access(page->path, F_OK), 0);
    assert_int_not_equal(access(old, F_OK), 0); /* that name nobody maps */
    page_close(page, 1);
}

static int64_t own_time_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * (int64_t)1000000000 + now.tv_nsec;
}

/* 10 000 files as large as a page may be, with a good beginning, of processes that live or of none: no
 * start looks at all of them, or reads one whole. In processor time, so that other programs do not
 * count. */
static void test_clearing_old_pages_is_quick(void **state)
{
    (void)state;
    enum { FILES = 10000, STARTS = 200 };
    char name[sizeof directory + 24];
    struct proc_status status;
    assert_int_equal(proc_status((uint64_t)getpid(), &status), 0);
    struct page head = {.magic = PAGE_MAGIC,
                        .format = PAGE_FORMAT,
                        .header_bytes = sizeof(struct page),
                        .start_ticks = status.start_ticks,
                        .pid_namespace = proc_namespace(),
                        .page_bytes = 64 << 20};
    const struct timespec long_ago[2] = {{1, 0}, {1, 0}}; /* mtime */
    char begin[offsetof(struct page, exe)];               /* what tells whether a page may go */
    int64_t most = 0;
    int left = 0;
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "%s/1.%d.0.page", directory, i);
        int fd = open(name, O_RDWR | O_CREAT, 0600);
        head.pid = i % 2 ? (uint64_t)getpid() : UINT32_MAX;
        assert_int_equal(pwrite(fd, &head, sizeof begin, 0), sizeof begin);
        assert_int_equal(ftruncate(fd, 64 << 20), 0);
        assert_int_equal(futimens(fd, long_ago), 0);
        close(fd);
    }
    for (int start = 0; start < STARTS; start++) {
        int64_t before = own_time_ns();
        page_remove_old(directory, 60);
        int64_t ns = own_time_ns() - before;
        most = ns > most ? ns : most;
    }
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "%s/1.%d.0.page", directory, i);
        left += unlink(name) == 0;
    }
    print_message("at most %lld us; %d of %d pages left after %d starts\n",
                  (long long)(most / 1000), left, FILES, STARTS);
    assert_true(most < 10000000);
    assert_true(left < FILES);
}

/* Most recent files come first on tmpfs: the pages that cannot be removed. */
static void test_files_that_stay_keep_no_old_page(void **state)
{
    (void)state;
    enum { FILES = 60, DEAD = 20 };
    char name[FILES][sizeof directory + 16];
    struct page head = {.magic = PAGE_MAGIC,
                        .format = PAGE_FORMAT,
                        .header_bytes = sizeof(struct page),
                        .pid = UINT32_MAX,
                        .pid_namespace = proc_namespace()};
    const struct timespec long_ago[2] = {{1, 0}, {1, 0}};
    int left = DEAD;
    for (int i = 0; i < FILES; i++) {
        snprintf(name[i], sizeof name[i], "%s/1.%d.0.page", directory, i);
        int fd = open(name[i], O_RDWR | O_CREAT, 0600);
        head.format = i < DEAD ? PAGE_FORMAT : PAGE_FORMAT + 1;
        assert_int_equal(pwrite(fd, &head, sizeof head, 0), sizeof head);
        assert_int_equal(futimens(fd, long_ago), 0);
        close(fd);
    }
    for (int start = 0; left && start < 5000; start++) {
        page_remove_old(directory, 60);
        left = 0;
        for (int i = 0; i < DEAD; i++)
            left += access(name[i], F_OK) == 0;
    }
    assert_int_equal(left, 0);
    for (int i = DEAD; i < FILES; i++)
        assert_int_equal(unlink(name[i]), 0);
}

static const char *lookup(const char *name)
{
    return strcmp(name, "EVIL") == 0 ? "../../etc/passwd" : strcmp(name, "P") == 0 ? "%n" : NULL;
}

static void expand(const char *pattern, const char *expected)
{
    static struct page page = {.pid = 7, .start_realtime_ns = 951827696000000000};
    char path[256];
    const char *problem;
    snprintf(page.program, sizeof page.program, "train.py");
    snprintf(page.cwd, sizeof page.cwd, "/work");
    snprintf(page.hostname, sizeof page.hostname, ".h/\n");
    int result = report_expand(&page, pattern, lookup, path, sizeof path, &problem);
    if (expected == NULL) {
        assert_int_equal(result, -1);
        assert_non_null(problem);
    } else {
        assert_int_equal(result, 0);
        assert_string_equal(path, expected);
    }
}

static void test_expand(void **state)
{
    (void)state;
    char long_name[300];
    memset(long_name, 'a', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    expand(NULL, "/work/cachalot.train.py.7.json");
    expand("/a/%p%r.%t", "/a/7none.20000229T123456Z");
    expand("%h", "/work/_h__");
    expand("%q{EVIL}/x", "/work/_._.._etc_passwd/x");
    expand("%q{P}%n%%", "/work/%%n%n%%");
    expand("%x", NULL);
    expand("%", NULL);
    expand("%q{", NULL);
    expand("%q{}", NULL);
    expand("a/", NULL);
    expand(long_name, NULL);
    expand("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/"
           "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/"
           "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/"
           "b",
           NULL);
}

static void test_strings_become_valid(void **state)
{
    (void)state;
    const char *texts[][2] = {{"a\xc3\xa9", "a\xc3\xa9"},
                              {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},
                              {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
                              {"x\xe2\x82", "x\xef\xbf\xbd\xef\xbf\xbd"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *value = report_string(texts[i][0]);
        assert_string_equal(json_string_value(value), texts[i][1]);
        json_decref(value);
    }
}

/* 150 sizes, each leaked as often as its size says; sizes grow with the address. */
static struct snapshot_block *many_blocks(size_t *count)
{
    struct snapshot_block *blocks = calloc(150 * 151 / 2, sizeof *blocks);
    *count = 0;
    for (unsigned size = 1; size <= 150; size++)
        for (unsigned i = 0; i < size; i++, ++*count)
            blocks[*count] = (struct snapshot_block){.address = 0x1000 + *count * 512,
                                                     .size_bytes = 512,
                                                     .requested_bytes = size,
                                                     .segment_address = 0x1000,
                                                     .segment_bytes = 2 << 20,
                                                     .state = SNAPSHOT_ALLOCATED};
    blocks[0].state = SNAPSHOT_REUSABLE;
    return blocks;
}

static void test_leaks_and_segments(void **state)
{
    (void)state;
    struct page *page = create();
    page_device(page, 0)->used = 1;
    struct snapshot snapshot = {.page = page, .with_segments = 1};
    struct snapshot_block *blocks = many_blocks(&snapshot.block_count);
    struct report_options options = {.kind = REPORT_EXIT, .exit_reason = "exit"};
    snapshot.blocks = blocks;
    char *text = report_text(&snapshot, &options);
    json_t *root = json_loads(text, 0, NULL), *leaks = json_object_get(root, "leaks");
    assert_int_equal(json_array_size(leaks), 101);
    json_t *first = json_array_get(leaks, 0), *rest = json_array_get(leaks, 100);
    assert_int_equal(json_integer_value(json_object_get(first, "requested_bytes")), 150);
    assert_int_equal(json_integer_value(json_object_get(first, "count")), 150);
    assert_int_equal(json_array_size(json_object_get(first, "addresses")), 8);
    assert_int_equal(json_integer_value(json_object_get(rest, "count")), 50 * 51 / 2 - 1);
    json_t *device = json_array_get(json_object_get(root, "devices"), 0);
    json_t *segments = json_object_get(device, "segments");
    assert_int_equal(json_array_size(segments), 1);
    json_decref(root);
    free(text);
    free(blocks);
    page_close(page, 1);
}

/* A page says what it likes: numbers that no reader of JSON takes are none. */
static void test_more_events_than_json_has_numbers(void **state)
{
    (void)state;
    const char *problem;
    const struct page_shape shape = {.devices = 1, .events = 16, .shown = 16};
    struct page *page = page_create(directory, shape, &problem);
    assert_non_null(page);
    atomic_store(&page_events(page)->count, UINT64_C(1) << 63);
    const struct snapshot snapshot = {.page = page};
    const struct report_options options = {.kind = REPORT_HARVEST};
    char *text = report_text(&snapshot, &options);
    json_t *report = text ? json_loads(text, 0, NULL) : NULL;
    json_t *lost = json_object_get(json_object_get(report, "events"), "lost");
    assert_int_equal(json_integer_value(lost), (INT64_C(1) << 53) - 1);
    json_decref(report);
    free(text);
    page_close(page, 1);
}

static void test_torn_row_is_said(void **state)
{
    (void)state;
    struct page *page = create();
    page_device(page, 0)->used = 1;
    stats_begin(&page_device(page, 0)->stats);
    struct snapshot snapshot = {.page = page};
    struct report_options options = {
        .kind = REPORT_HARVEST, .exit_reason = "killed", .exit_code = -1, .exit_signal = 9};
    char *text = report_text(&snapshot, &options);
    assert_non_null(strstr(text, "\"torn\": true"));
    free(text);
    page_close(page, 1);
}

/* The points of a series, as a reader finds them. */
static struct points {
    unsigned count;
    struct series_look at[SERIES_POINTS];
} points;

static void take_point(void *unused, const struct series_look *point)
{
    (void)unused;
    assert_true(!points.count || point->time_ns > points.at[points.count - 1].time_ns);
    points.at[points.count++] = *point;
}

static void read_series(const struct series *series)
{
    points.count = 0;
    series_walk(series, take_point, NULL);
}

#define LOOKS 100000
#define STEP_NS UINT64_C(100000000)
static struct series_look looks[LOOKS];

/* Are the looks up to `end` in the points, none with less than was there? */
static void expect_looks(unsigned end)
{
    for (unsigned i = 0, p = 0; i < end; i++) {
        while (p + 1 < points.count && points.at[p + 1].time_ns <= looks[i].time_ns)
            p++;
        const struct series_look *point = &points.at[p];
        assert_true(point->time_ns <= looks[i].time_ns && point->allocated >= looks[i].allocated &&
                    point->reserved >= looks[i].reserved && point->free <= looks[i].free);
        if (looks[end - 1].time_ns - looks[i].time_ns < 60 * 10 * STEP_NS)
            assert_memory_equal(point, &looks[i], sizeof *point);
    }
}

/* A process may be killed at any instruction of series_add: then points up to some place have moved. */
static void expect_any_mixture(const struct series *before, const struct series *after,
                               unsigned end)
{
    static struct series mixed;
    for (unsigned i = 0; i <= SERIES_POINTS; i += 31) {
        mixed = *before;
        memcpy(mixed.point, after->point, i * sizeof *mixed.point);
        read_series(&mixed);
        expect_looks(end);
    }
}

static void test_a_series_keeps_peaks_and_the_last_minute(void **state)
{
    (void)state;
    static struct series own, told, before;
    uint32_t random = 4711;
    for (unsigned i = 0; i < LOOKS; i++) {
        random = random * 1664525 + 1013904223;
        uint64_t bytes = (1 + (random >> 12)) * UINT64_C(512) * (i == 777 ? 4 : 1);
        looks[i] = (struct series_look){i * STEP_NS, bytes, 4 * bytes, (UINT64_C(1) << 40) - bytes};
        before = told;
        assert_true(series_add(&own, &told, &looks[i]));
        assert_false(series_add(&own, &told, &looks[i]));
        if ((i + 1) % 20000)
            continue;
        read_series(&told);
        expect_looks(i + 1);
        assert_in_range(points.count, 2000, SERIES_POINTS);
        assert_memory_equal(&own, &told, sizeof own);
        expect_any_mixture(&before, &told, i);
    }
    /* Old points lie about as far apart: nowhere more than a few times the middle. */
    uint64_t middle = looks[LOOKS - 1].time_ns / points.count, most = 0;
    for (unsigned i = 1; i < points.count; i++)
        if (points.at[i].time_ns - points.at[i - 1].time_ns > most)
            most = points.at[i].time_ns - points.at[i - 1].time_ns;
    assert_in_range(most, middle, 5 * middle);
    assert_true(SERIES_MOST * sizeof told <= 256 * 1024);
}

/* Quiet hours are one point, and stay one. */
static void test_a_series_of_bursts(void **state)
{
    (void)state;
    static struct series own, told;
    for (unsigned i = 0; i < 30000; i++) {
        uint64_t hours = i / 30 * UINT64_C(3600000000000);
        looks[i] = (struct series_look){hours + i % 30 * STEP_NS,
                                        i % 30 == 29 ? 512 : 1024 * (1 + i % 7), 4096, UINT64_MAX};
        series_add(&own, &told, &looks[i]);
    }
    read_series(&told);
    uint64_t quiet = 0;
    for (unsigned i = 1; i < points.count; i++)
        if (points.at[i - 1].allocated == 512)
            quiet += points.at[i].time_ns - points.at[i - 1].time_ns;
    assert_in_range(100 * quiet / looks[29999].time_ns, 95, 100);
}

static void test_a_damaged_series(void **state)
{
    (void)state;
    struct page *page = create();
    struct series *series = page_series(page, 0);
    page_device(page, 0)->used = 1;
    stats_add(&page_device(page, 0)->stats, STAT_allocated_bytes, LARGE_POOL, 1 << 20);
    memset(series, 0xff, sizeof *series);
    stat_set(&page_series(page, 1)->device, 1);
    struct snapshot snapshot = {.page = page};
    struct report_options options = {.kind = REPORT_HARVEST};
    char *text = report_text(&snapshot, &options);
    json_t *report = text ? json_loads(text, 0, NULL) : NULL;
    json_t *points_of =
        json_object_get(json_array_get(json_object_get(report, "series"), 0), "points");
    assert_int_equal(json_array_size(points_of), 1);
    assert_int_equal(json_integer_value(json_array_get(json_array_get(points_of, 0), 1)), 1 << 20);
    json_decref(report);
    free(text);
    page_close(page, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page_has_a_private_file_and_leaves_nothing_open),
        cmocka_unit_test(test_generations),
        cmocka_unit_test(test_child_does_not_have_it),
        cmocka_unit_test(test_bad_directories_fall_back),
        cmocka_unit_test(test_file_size_limit_is_no_signal),
        cmocka_unit_test(test_fields_describe_every_number),
        cmocka_unit_test(test_warnings_are_counted_and_lost_beyond_the_room),
        cmocka_unit_test(test_old_dead_pages_are_removed_and_live_ones_not),
        cmocka_unit_test(test_files_that_stay_keep_no_old_page),
        cmocka_unit_test(test_clearing_old_pages_is_quick),
        cmocka_unit_test(test_expand),
        cmocka_unit_test(test_strings_become_valid),
        cmocka_unit_test(test_leaks_and_segments),
        cmocka_unit_test(test_more_events_than_json_has_numbers),
        cmocka_unit_test(test_torn_row_is_said),
        cmocka_unit_test(test_a_series_keeps_peaks_and_the_last_minute),
        cmocka_unit_test(test_a_series_of_bursts),
        cmocka_unit_test(test_a_damaged_series),
    };
    if (mkdtemp(directory) == NULL)
        return 77;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return rmdir(directory) != 0 || failed != 0;
}
