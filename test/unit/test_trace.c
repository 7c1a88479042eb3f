/* The trace's file where the disk is so slow that those who note events do not wait for it. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "stats/output/trace.h"

#define EVENTS 8192
#define ADDED 5000

ssize_t __real_pwrite64(int fd, const void *bytes, size_t size, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t size, off_t offset);

static struct page *page;
static int slow_write; /* which one of events; 0: none */
static char path[] = "/dev/shm/cachalot-test-XXXXXX/trace";

/* Halfway through it somebody gives the trace up, and notes an event over what is yet to be written. */
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t size, off_t offset)
{
    struct events *events = page_events(page);
    if (offset >= TRACE_HEADER_BYTES && slow_write && --slow_write == 0) {
        atomic_store(&events->trace, TRACE_STOPPED);
        struct event *last = (struct event *)((const char *)bytes + size) - 1;
        memset(last, 0, sizeof *last);
    }
    return __real_pwrite64(fd, bytes, size, offset);
}

static int setup(void **state)
{
    static char directory[sizeof path];
    const char *problem = "";
    struct page_shape shape = {.devices = 1, .events = EVENTS};
    (void)state;
    strcpy(directory, "/dev/shm/cachalot-test-XXXXXX");
    assert_non_null(mkdtemp(directory));
    memcpy(path, directory, strlen(directory));
    assert_non_null(page = page_create(directory, shape, &problem));
    assert_int_equal(trace_open(page, path), 0);
    for (uint64_t i = 0; i < ADDED; i++)
        events_add(page_events(page), EVENT_alloc, 0, 4096 * (i + 1), 512, 512, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    page_close(page, 1);
    *strrchr(path, '/') = 0;
    rmdir(path);
    path[strlen(path)] = '/';
    return 0;
}

static struct trace_header header(uint64_t *size)
{
    struct trace_header header;
    struct stat status;
    int fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, &header, sizeof header), sizeof header);
    assert_int_equal(fstat(fd, &status), 0);
    close(fd);
    *size = (uint64_t)status.st_size;
    return header;
}

static void all_is_written(void **state)
{
    uint64_t size;
    (void)state;
    assert_int_equal(trace_write(page, TRACE_ENDED, 0), 0);
    struct trace_header whole = header(&size);
    assert_int_equal(whole.state, TRACE_ENDED);
    assert_int_equal(whole.events, ADDED);
    assert_int_equal(size, TRACE_HEADER_BYTES + ADDED * sizeof(struct event));
}

/* What was read when it could be overwritten is not called written, and the trace not ended. */
static void what_was_given_up_meanwhile_is_not_written(void **state)
{
    (void)state;
    for (int nth = 1; nth < 3; nth++) {
        uint64_t size;
        slow_write = nth;
        assert_int_equal(trace_write(page, TRACE_ENDED, 0), -ETIME);
        struct trace_header cut = header(&size);
        assert_int_equal(slow_write, 0);
        assert_int_equal(cut.state, TRACE_STOPPED);
        assert_string_equal(cut.reason, trace_problem(-ETIME));
        assert_int_equal(size, TRACE_HEADER_BYTES + cut.events * sizeof(struct event));
        assert_true(nth == 1 ? cut.events == 0 : cut.events > 0 && cut.events < ADDED);
        teardown(NULL);
        setup(NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_is_written, setup, teardown),
        cmocka_unit_test_setup_teardown(what_was_given_up_meanwhile_is_not_written, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
