#include "stats/output/trace.h"

#include "stats/events/events.h"
#include "stats/os/create.h"
#include "stats/os/file_limit.h"
#include "stats/os/proc.h"
#include "stats/output/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WRITE_MOST 1024

static int write_at(int fd, const void *from, size_t size, uint64_t offset)
{
    const char *at = from;
    if (!file_limit_allows(offset + size))
        return -EFBIG;
    while (size > 0) {
        ssize_t n = pwrite(fd, at, size, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        at += n;
        offset += (size_t)n;
        size -= (size_t)n;
    }
    return 0;
}

static void fill_header(struct trace_header *header, const struct page *page,
                        const struct events *events, const char *reason, int dead)
{
    /* The readings in a live page change meanwhile, so this reads the clock itself. */
    struct event_clock last = dead ? events->ring->last[events->ring->latest & 1] : events_clock();
    *header = (struct trace_header){
        .magic = TRACE_MAGIC,
        .format = TRACE_FORMAT,
        .event_bytes = sizeof(struct event),
        .state = events->trace,
        .events = events->written,
        .pid = page->pid,
        .start_ticks = page->start_ticks,
        .pid_namespace = page->pid_namespace,
        .start_realtime_ns = page->start_realtime_ns,
        .begin_ns = events->begin_ns,
        .first_ticks = events->first.ticks,
        .first_ns = events->first.ns,
        .last_ticks = last.ticks,
        .last_ns = last.ns,
    };
    memcpy(header->session, page->session, sizeof header->session);
    memcpy(header->hostname, page->hostname, sizeof header->hostname);
    memcpy(header->exe, page->exe, sizeof header->exe);
    memcpy(header->page, page->path, sizeof header->page);
    snprintf(header->reason, sizeof header->reason, "%s", reason);
}

/* The first bytes of a trace. They do not lie on the stack: a thread's stack may have only 16 KiB. One
 * thread opens a trace at a time. */
static union {
    struct trace_header header;
    char bytes[TRACE_HEADER_BYTES];
} begin;

/* Whether a new trace may replace the open file: an empty one, or the trace of a process that has
 * ended and is not of this run. */
static int may_replace(int directory, const char *name, int fd, const struct page *page)
{
    const struct trace_header *old = &begin.header;
    ssize_t n = pread(fd, &begin.header, sizeof begin.header, 0);
    begin.header.session[sizeof begin.header.session - 1] = '\0';
    begin.header.hostname[sizeof begin.header.hostname - 1] = '\0';
    /* The pid means nothing there. */
    int elsewhere =
        old->pid_namespace != page->pid_namespace || strcmp(old->hostname, page->hostname) != 0;
    int may = n == sizeof begin.header &&
              memcmp(old->magic, TRACE_MAGIC, sizeof TRACE_MAGIC) == 0 &&
              !page_is_of_run(page, old->session) &&
              (elsewhere ? old->state != TRACE_ON
                         : old->pid == page->pid || !proc_is_alive(old->pid, old->start_ticks));
    return (n == 0 || may) && output_claim(directory, name, fd);
}

/* Frees the name for a new trace. Returns 0, -EEXIST or another -errno: a trace beside a directory or
 * a device (/dev/null) would surprise. */
static int free_name(int directory, const char *name, const struct page *page)
{
    int fd = output_open_taken(directory, name, geteuid()), error = -EEXIST;
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    if (may_replace(directory, name, fd, page))
        error = unlinkat(directory, name, 0) == 0 ? 0 : -errno;
    close(fd);
    return error;
}

/* Makes `name`, with its header. Returns 0, -EEXIST or another -errno. */
static int create(int directory, const char *name, struct page *page, const struct events *events)
{
    int error = free_name(directory, name, page);
    int fd = error == 0 ? create_new_file(directory, name, 0644) : error;
    if (fd < 0)
        return fd;
    struct stat status;
    memset(&begin, 0, sizeof begin);
    fill_header(&begin.header, page, events, "", 0);
    begin.header.state = TRACE_ON;
    error = write_at(fd, &begin, sizeof begin, 0);
    if (error == 0 && fstat(fd, &status) == 0) {
        page->trace_file[0] = status.st_dev;
        page->trace_file[1] = status.st_ino;
    }
    close(fd);
    if (error != 0)
        unlinkat(directory, name, 0);
    return error;
}

int trace_open(struct page *page, const char *path)
{
    const char *name;
    struct events *events = page_events(page);
    int directory = events ? output_directory_open(page, path, &name) : -EINVAL, error = -EEXIST;
    if (directory < 0)
        return directory;
    size_t before = (size_t)(name - path);
    for (unsigned i = 0; error == -EEXIST && i < OUTPUT_NAMES; i++) {
        char suffix[OUTPUT_SUFFIX_BYTES];
        output_add_suffix(page, i, suffix, sizeof suffix);
        int n = snprintf(page->trace, sizeof page->trace, "%s%s", path, suffix);
        error = n < (int)sizeof page->trace ? create(directory, page->trace + before, page, events)
                                            : -ENAMETOOLONG;
    }
    close(directory);
    if (error == 0)
        events_set_trace(events, TRACE_ON);
    else
        page->trace[0] = '\0';
    PAGE_TELL(page, trace);
    PAGE_TELL(page, trace_file);
    return error;
}

const char *trace_problem(int error)
{
    return error == -ESTALE  ? "its file was replaced or cut off"
           : error == -ETIME ? "the disk was too slow"
                             : strerror(-error);
}

enum owner { OURS, EMPTIED, FOREIGN };

/* Whose file it is. Names and inodes are reused, and a copy onto a file keeps both. Therefore OURS
 * begins with the header that trace_open made for this page; EMPTIED begins with a hole. */
static enum owner owner_of(int fd, const struct page *page)
{
    static const struct trace_header hole;
    struct trace_header header = {0};
    if (pread(fd, &header, offsetof(struct trace_header, first_ticks), 0) <= 0 ||
        memcmp(&header, &hole, sizeof header) == 0)
        return EMPTIED;
    return memcmp(header.magic, TRACE_MAGIC, sizeof TRACE_MAGIC) == 0 && header.pid == page->pid &&
                   header.start_ticks == page->start_ticks &&
                   header.pid_namespace == page->pid_namespace &&
                   header.start_realtime_ns == page->start_realtime_ns &&
                   header.begin_ns == page_events(page)->begin_ns
               ? OURS
               : FOREIGN;
}

/* Opens the file that trace_open made, with all that was written; -errno if it is another. */
static int open_again(const struct page *page)
{
    struct stat status;
    uint64_t written = page_events(page)->written;
    int fd = open(page->trace, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
        status.st_dev == page->trace_file[0] && status.st_ino == page->trace_file[1] &&
        (uint64_t)status.st_size >= TRACE_HEADER_BYTES + written * sizeof(struct event) &&
        owner_of(fd, page) == OURS)
        return fd;
    close(fd);
    return -ESTALE;
}

/* The whole events from `n` on, at most up to the ring's end and WRITE_MOST. A write that fails for
 * want of room loses all its events, so writes are small. */
static uint64_t count_whole(const struct events *events, uint64_t n)
{
    uint64_t end = atomic_load_explicit(&events->count, memory_order_acquire), count = 0;
    uint64_t most = events->capacity - (n & (events->capacity - 1));
    most = end - n < most ? end - n : most;
    most = most < WRITE_MOST ? most : WRITE_MOST;
    while (count < most &&
           atomic_load_explicit(&events->ring->event[(n + count) & (events->capacity - 1)].number,
                                memory_order_acquire) == n + count + 1)
        count++;
    return count;
}

/* Whether the file was not cut off since its size was checked. A later write makes a cut file long
 * again, but the header or event number `n` is missing in it. */
static int is_whole(int fd, const struct page *page, uint64_t n)
{
    struct event last = {0};
    off_t offset = (off_t)(TRACE_HEADER_BYTES + (n - 1) * sizeof last);
    return owner_of(fd, page) == OURS &&
           (n == 0 || (pread(fd, &last, sizeof last, offset) == sizeof last && last.number == n &&
                       last.who != 0));
}

static int write_events(int fd, struct page *page, int skip)
{
    struct events *events = page_events(page);
    uint64_t last = stat_get(&events->written); /* that is not a hole */
    if (last > 0 &&
        stat_get(&events->ring->event[(last - 1) & (events->capacity - 1)].number) < last)
        last = 0;
    for (;;) {
        uint64_t n = stat_get(&events->written), count = count_whole(events, n);
        uint64_t end = atomic_load_explicit(&events->count, memory_order_acquire);
        if (atomic_load(&events->trace) != TRACE_ON)
            return -ETIME; /* a waiting thread gave up: events may be overwritten */
        if (end - n > events->capacity)
            return -EINVAL; /* a damaged page */
        if (count == 0 && (!skip || n >= end))
            return 0;
        uint64_t offset = TRACE_HEADER_BYTES + n * sizeof(struct event);
        int error = write_at(fd, &events->ring->event[n & (events->capacity - 1)],
                             count * sizeof(struct event), offset);
        if (error == 0 && count > 0 && !is_whole(fd, page, last))
            error = -ESTALE;
        atomic_thread_fence(memory_order_acquire); /* the ring was read before `trace` is */
        if (error == 0 && atomic_load(&events->trace) != TRACE_ON)
            error = -ETIME; /* a thread gave up during the write */
        if (error != 0)
            return error;
        last = count > 0 ? n + count : last;
        if (count == 0) /* leaves a hole in the file, whose number is 0 */
            count = 1;
        events_set_written(events, n + count);
    }
}

/* Writes the ring and then the rows of a dead process, as much at a time as the ring has room for. */
static int write_left(int fd, struct page *page)
{
    struct events *events = page_events(page);
    int error = write_events(fd, page, 1);
    events_take_over(events);
    while (error == 0 && events_take(events, 0))
        error = write_events(fd, page, 1);
    return error;
}

/* Writes the header. At the end it makes the file as long as the count says, even if the last event is
 * a hole. After an error it cuts off what the count does not include: all of an EMPTIED file, nothing
 * of a FOREIGN one. */
static int write_header(int fd, const struct page *page, int error, int dead)
{
    const struct events *events = page_events(page);
    struct trace_header header;
    fill_header(&header, page, events, error ? trace_problem(error) : "", dead);
    enum owner owner = error == -ESTALE ? owner_of(fd, page) : OURS;
    if (owner == FOREIGN)
        return error;
    int emptied = owner == EMPTIED;
    uint64_t bytes = emptied ? 0 : TRACE_HEADER_BYTES + events->written * sizeof(struct event);
    int late = emptied ? 0 : write_at(fd, &header, sizeof header, 0);
    int ends = error != 0 || (header.state == TRACE_ENDED && file_limit_allows(bytes));
    return ends && ftruncate(fd, (off_t)bytes) != 0 ? -errno : late;
}

int trace_write(struct page *page, enum events_trace end, int dead)
{
    struct events *events = page_events(page);
    if (!events)
        return -EINVAL;
    int fd = open_again(page), error = fd < 0 ? fd : 0;
    if (error == 0)
        error = dead ? write_left(fd, page) : write_events(fd, page, end != TRACE_ON);
    if (error != 0)
        atomic_store(&events->trace, TRACE_STOPPED);
    else if (!atomic_compare_exchange_strong(&events->trace, &(uint64_t){TRACE_ON}, end))
        error = -ETIME;
    stat_set(&events->ring->trace, stat_get(&events->trace));
    if (fd < 0)
        return error;
    int late = write_header(fd, page, error, dead);
    if (close(fd) != 0 && error == 0) /* a full network file system says so here */
        late = -errno;
    return error ? error : late;
}
