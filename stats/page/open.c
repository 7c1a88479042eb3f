/* Reading the page of another process. The file is hostile input, and may change or be cut off at any
 * moment: it is read into private memory and never mapped, and every count and offset is checked
 * there before it is used. */
#include "stats/page/page.h"

#include "stats/events/events.h"
#include "stats/os/pause.h"
#include "stats/os/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_BYTES_MOST (64U << 20)

static const char *check_file(int fd, size_t *bytes)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return "cannot be examined";
    if (!S_ISREG(status.st_mode))
        return "is not a regular file";
    if (status.st_uid != geteuid() || (status.st_mode & 077) != 0)
        return "belongs to, or can be reached by, another user";
    if (status.st_size < (off_t)sizeof(struct page) || status.st_size > (off_t)PAGE_BYTES_MOST)
        return "has not the size of a page";
    *bytes = (size_t)status.st_size;
    return NULL;
}

static int is_table(uint64_t offset, uint64_t count, uint64_t stride, size_t bytes)
{
    return offset >= sizeof(struct page) && offset % 8 == 0 && offset <= bytes &&
           count * stride <= bytes - offset;
}

static struct events_ring *ring_of(const struct page *page)
{
    return (struct events_ring *)((char *)page + page->events_offset);
}

/* Whether the page has no events, or a ring that lies in the page as a whole. */
static int has_events(const struct page *page, size_t bytes)
{
    uint64_t offset = page->events_offset;
    if (!offset)
        return 1;
    if (offset % 64 || !is_table(offset, 1, sizeof(struct events_ring), bytes))
        return 0;
    const struct events_ring *ring = ring_of(page);
    uint64_t capacity = ring->capacity;
    return capacity && capacity <= EVENTS_MOST && (capacity & (capacity - 1)) == 0 &&
           ring->shown <= capacity && is_table(offset, 1, events_bytes(capacity), bytes) &&
           ring->rows <= EVENT_ROWS && ring->latest < 2;
}

/* What the first bytes say, before all others are read. */
static const char *check_beginning(const struct page *page, size_t bytes)
{
    if (memcmp(page->magic, PAGE_MAGIC, sizeof page->magic) != 0)
        return "is not a page";
    if (page->format != PAGE_FORMAT || page->header_bytes != sizeof *page ||
        page->device_stride % 64 != 0 || page->device_stride < sizeof(struct page_device) ||
        page->device_stride > 2 * sizeof(struct page_device))
        return "is a page of another version of cachalot";
    if (page->page_bytes != bytes || page->device_count > PAGE_DEVICES ||
        !is_table(page->device_offset, page->device_count, page->device_stride, bytes) ||
        !is_table(page->field_offset, page->field_count, sizeof(struct page_field), bytes) ||
        page->series_count > SERIES_MOST ||
        !is_table(page->series_offset, page->series_count, sizeof(struct series), bytes) ||
        (page->sites_offset && !is_table(page->sites_offset, 1, sizeof(struct sites), bytes)))
        return "is a damaged page";
    return NULL;
}

#define END(text) ((text)[sizeof(text) - 1] = '\0')

static void end_process_texts(struct page *page)
{
    END(page->tool);
    END(page->exe);
    END(page->program);
    END(page->argv);
    END(page->cwd);
    END(page->hostname);
    END(page->session);
    END(page->rank);
    END(page->rank_source);
    END(page->path);
    END(page->output);
    END(page->trace);
    END(page->answer);
    END(page->coverage_note);
    END(page->hook_order);
    if (page->argv_bytes > sizeof page->argv)
        page->argv_bytes = sizeof page->argv;
}

static void end_neighbours(struct page_neighbour *neighbour)
{
    for (unsigned i = 0; i < PAGE_NEIGHBOURS; i++)
        END(neighbour[i].program);
}

static void end_texts(struct page *page)
{
    end_process_texts(page);
    for (unsigned i = 0; i < PAGE_OOMS; i++)
        end_neighbours(page->oom[i].neighbour);
    for (unsigned i = 0; i < PAGE_ASKS; i++)
        end_neighbours(page->ask[i].neighbour);
    for (unsigned i = 0; i < PAGE_WARNINGS; i++)
        END(page->warning[i].text);
    for (unsigned i = 0; i < PAGE_FAULTS; i++)
        END(page->faults.fault[i].call);
    if (page->config_count > PAGE_CONFIGS)
        page->config_count = PAGE_CONFIGS;
    for (unsigned i = 0; i < PAGE_CONFIGS; i++) {
        END(page->config[i].name);
        END(page->config[i].value);
        END(page->config[i].source);
    }
    for (unsigned i = 0; i < page->device_count; i++) {
        END(page_device(page, i)->name);
        END(page_device(page, i)->uuid);
    }
}

static int read_at(int fd, void *to, size_t bytes, uint64_t offset)
{
    while (bytes > 0) {
        ssize_t n = pread(fd, to, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        to = (char *)to + n;
        offset += (size_t)n;
        bytes -= (size_t)n;
    }
    return 0;
}

/* One page that is being read. The waits for its writer are bounded together: all rows of a dead
 * process may be odd. */
struct reading {
    int fd;
    int tries;
};

/* Reads a row that begins with its sequence. Returns -1 if it stayed odd, or changed at each try. */
static int read_row(struct reading *reading, void *row, size_t bytes, uint64_t offset)
{
    for (;;) {
        uint64_t before, after;
        if (read_at(reading->fd, row, bytes, offset) != 0 ||
            read_at(reading->fd, &after, sizeof after, offset) != 0)
            return -1;
        memcpy(&before, row, sizeof before);
        if (before % 2 == 0 && before == after)
            return 0;
        if (!pause_between(reading->tries++))
            return -1;
    }
}

/* Reads the rows of thread caches that count for `device`. */
static int read_caches(struct reading *reading, struct page *copy, unsigned device)
{
    int code = read_at(reading->fd, copy->cache, sizeof copy->cache, offsetof(struct page, cache));
    for (unsigned i = 0; i < PAGE_CACHES; i++) {
        struct cache_row *row = &copy->cache[i];
        uint64_t offset = offsetof(struct page, cache) + i * sizeof *row;
        if (row->device == device + 1)
            code |= read_row(reading, row, sizeof *row, offset);
        row->sequence &= ~UINT64_C(1); /* it is ours: nobody completes it */
    }
    return code;
}

/* The numbers of a device as they were at one moment, with what thread caches counted for it. */
static void read_device(struct reading *reading, struct page *copy, unsigned i)
{
    struct device_stats *to = &page_device(copy, i)->stats;
    uint64_t offset = (uint64_t)((char *)to - (char *)copy), after = 0;
    struct device_stats from;
    int code, is_settled;
    do {
        code = read_row(reading, &from, sizeof from, offset);
        code |= read_caches(reading, copy, i);
        code |= read_at(reading->fd, &after, sizeof after, offset);
        is_settled = after == from.sequence;
    } while (!is_settled && pause_between(reading->tries++));
    from.sequence &= ~UINT64_C(1);
    stats_gather(to, &from, copy->cache, PAGE_CACHES, i);
    if (code != 0 || !is_settled)
        to->sequence |= 1; /* so that the report can say so */
}

static void forget_caches(struct page *copy)
{
    for (unsigned i = 0; i < PAGE_CACHES; i++)
        copy->cache[i].device = 0; /* they are in the devices' numbers */
}

/* Binds the copy's events, and leaves out those that may have been overwritten while they were read. */
static void bind_events(const struct reading *reading, struct page *copy)
{
    struct events_ring *ring = ring_of(copy);
    uint64_t now, place = copy->events_offset + offsetof(struct events_ring, count);
    if (!copy->events_offset)
        return;
    if (read_at(reading->fd, &now, sizeof now, place) != 0)
        now = UINT64_MAX;
    for (uint64_t i = 0; now != ring->count && i < ring->capacity; i++)
        if (now - ring->event[i].number >= ring->capacity)
            ring->event[i].number = 0;
    copy->own.events = &copy->own.recorder;
    events_bind(copy->own.events, ring);
}

/* Makes a checked private copy whole: its own pointers, rows and texts. */
static void complete(struct reading *reading, struct page *copy)
{
    for (unsigned i = 0; i < copy->device_count; i++)
        if (page_device(copy, i)->used)
            read_device(reading, copy, i);
    forget_caches(copy);
    bind_events(reading, copy);
    if (copy->sites_offset)
        copy->own.sites = (struct sites *)((char *)copy + copy->sites_offset);
    end_texts(copy);
}

static struct page *memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

struct page *page_read(int fd, const char **problem)
{
    size_t bytes = 0;
    struct reading reading = {.fd = fd};
    *problem = check_file(fd, &bytes);
    struct page *copy = *problem ? NULL : memory(bytes);
    if (copy == NULL) {
        *problem = *problem ? *problem : "does not fit into memory";
        return NULL;
    }
    if (read_at(fd, copy, offsetof(struct page, exe), 0) != 0)
        *problem = "cannot be read";
    else
        *problem = check_beginning(copy, bytes);
    if (*problem == NULL && read_at(fd, copy, bytes, 0) != 0)
        *problem = "is cut off";
    if (*problem == NULL)
        *problem = check_beginning(copy, bytes); /* it may have changed meanwhile */
    if (*problem == NULL && !has_events(copy, bytes))
        *problem = "is a damaged page";
    if (*problem != NULL) {
        munmap(copy, bytes);
        return NULL;
    }
    memset(&copy->own, 0, sizeof copy->own);
    complete(&reading, copy);
    return copy;
}

struct page *page_open(const char *path, int *asks, const char **problem)
{
    int flags = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    int fd = open(path, flags | (asks ? O_RDWR : O_RDONLY));
    if (fd < 0) {
        *problem = errno == ENOENT ? "does not exist" : "cannot be opened";
        return NULL;
    }
    struct page *page = page_read(fd, problem);
    if (asks && page)
        *asks = fd;
    else
        close(fd);
    return page;
}

/* Whole words, since the process changes its page meanwhile. A text may be half written: its end is
 * set, and a warning that is being written is not shown. */
__attribute__((no_sanitize("thread"))) static void copy_words(void *to, const void *from,
                                                              size_t bytes)
{
    const uint64_t *source = from;
    uint64_t *target = to;
    size_t words = bytes / sizeof *target;
    for (size_t i = 0; i < words; i++)
        target[i] = __atomic_load_n(&source[i], __ATOMIC_RELAXED);
    memcpy(target + words, source + words, bytes % sizeof *target);
}

struct page *page_copy(const struct page *page)
{
    size_t bytes = page->events_offset  ? page->events_offset
                   : page->sites_offset ? page->sites_offset
                                        : page->page_bytes;
    struct page *copy = memory(bytes);
    if (copy == NULL)
        return NULL;
    copy_words(copy, page, bytes);
    for (unsigned i = 0; i < copy->device_count; i++) {
        struct device_stats *to = &page_device(copy, i)->stats;
        if (page_device(copy, i)->used &&
            stats_gather(to, &page_device(page, i)->stats, page->cache, PAGE_CACHES, i) != 0)
            to->sequence |= 1;
    }
    forget_caches(copy);
    end_texts(copy);
    copy->own.told = NULL;
    copy->own.series = NULL;
    copy->page_bytes = (uint32_t)bytes;
    return copy;
}

int page_is_here(const struct page *page)
{
    return page->pid_namespace == proc_namespace();
}

int page_is_alive(const struct page *page, const char *path)
{
    return page_is_here(page) && proc_has_page(page->pid, page->start_ticks, path, UINT64_MAX);
}
