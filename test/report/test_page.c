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

/* Files as large as a page may be, whose beginning is good: no start reads them whole. */
static void test_clearing_old_pages_is_quick(void **state)
{
    (void)state;
    enum { FILES = 16 };
    char name[FILES][sizeof directory + 16];
    static const struct page head = {.magic = PAGE_MAGIC,
                                     .format = PAGE_FORMAT,
                                     .header_bytes = sizeof(struct page),
                                     .page_bytes = 64 << 20};
    const struct timespec long_ago[2] = {{1, 0}, {1, 0}}; /* mtime */
    int64_t least = INT64_MAX;
    for (int i = 0; i < FILES; i++) {
        snprintf(name[i], sizeof name[i], "%s/1.%d.0.page", directory, i);
        int fd = open(name[i], O_RDWR | O_CREAT, 0600);
        assert_int_equal(pwrite(fd, &head, sizeof head, 0), sizeof head);
        assert_int_equal(ftruncate(fd, 64 << 20), 0);
        assert_int_equal(futimens(fd, long_ago), 0);
        close(fd);
    }
    for (int try = 0; try < 10; try++) {
        struct timespec before, after;
        clock_gettime(CLOCK_MONOTONIC, &before);
        page_remove_old(directory, 60);
        clock_gettime(CLOCK_MONOTONIC, &after);
        int64_t ns = (after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec;
        least = ns < least ? ns : least;
    }
    assert_true(least < 10000000);
    for (int i = 0; i < FILES; i++)
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
        cmocka_unit_test(test_clearing_old_pages_is_quick),
        cmocka_unit_test(test_expand),
        cmocka_unit_test(test_strings_become_valid),
        cmocka_unit_test(test_leaks_and_segments),
        cmocka_unit_test(test_more_events_than_json_has_numbers),
        cmocka_unit_test(test_torn_row_is_said),
    };
    if (mkdtemp(directory) == NULL)
        return 77;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return rmdir(directory) != 0 || failed != 0;
}
