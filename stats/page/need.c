#include "stats/page/need.h"

#include "stats/os/clock.h"
#include "stats/os/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST_PAGES 1024 /* files that one call opens */

/* What of another page is read. */
struct neighbour {
    int fd;
    uint32_t device_offset, device_stride, device_count;
};

static int read_at(int fd, void *to, size_t bytes, uint64_t offset)
{
    return pread(fd, to, bytes, (off_t)offset) == (ssize_t)bytes;
}
#define READ(fd, to, field) read_at(fd, &(to), sizeof(to), offsetof(struct page, field))

enum verdict { LIVE, OVER, REFUSED };

/* Is the file `name` the page of a live process of this user, and of this version? Refused: it is
 * another user's, or not what its name says. */
static enum verdict judge(struct neighbour *n, const char *name, const struct page *own)
{
    char magic[sizeof own->magic];
    static const char none[sizeof magic];
    uint32_t format = 0, header = 0, state = 0;
    uint64_t pid = 0, start = 0, space = 0;
    unsigned long long named_pid, named_start;
    struct stat status;
    if (sscanf(name, "%20llu.%20llu.", &named_pid, &named_start) != 2 ||
        fstat(n->fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid() ||
        (status.st_mode & 077) != 0)
        return REFUSED;
    if (status.st_size == 0 || !READ(n->fd, magic, magic) || memcmp(magic, none, sizeof magic) == 0)
        return OVER; /* it is being made */
    if (memcmp(magic, PAGE_MAGIC, sizeof magic) != 0 || !READ(n->fd, format, format) ||
        !READ(n->fd, header, header_bytes))
        return REFUSED;
    if (format != PAGE_FORMAT || header != sizeof *own)
        return OVER;
    if (!READ(n->fd, state, state) || !READ(n->fd, pid, pid) || !READ(n->fd, start, start_ticks) ||
        !READ(n->fd, space, pid_namespace) || !READ(n->fd, n->device_offset, device_offset) ||
        !READ(n->fd, n->device_stride, device_stride) ||
        !READ(n->fd, n->device_count, device_count) || pid != named_pid || start != named_start)
        return REFUSED;
    return state && (space != own->pid_namespace || proc_is_alive(pid, start)) ? LIVE : OVER;
}

/* Is the neighbour's row a device in use with this UUID? */
static int is_device(const struct neighbour *n, unsigned row, const char *uuid)
{
    char theirs[sizeof(((struct page_device *)NULL)->uuid)];
    uint64_t used, at = n->device_offset + (uint64_t)row * n->device_stride;
    return row < n->device_count && row < PAGE_DEVICES &&
           read_at(n->fd, &used, sizeof used, at + offsetof(struct page_device, used)) && used &&
           read_at(n->fd, theirs, sizeof theirs, at + offsetof(struct page_device, uuid)) &&
           memchr(theirs, 0, sizeof theirs) && strcmp(theirs, uuid) == 0;
}

/* Calls `each` with the live pages beside the own one, until it returns 0. It may keep n->fd and set
 * it to -1. Returns the number of files that are refused; one more, if there are too many pages. */
static unsigned for_each(const struct page *own, int flags,
                         int (*each)(struct neighbour *n, void *context), void *context)
{
    char folder[sizeof own->path];
    const char *slash = strrchr(own->path, '/');
    if (!slash)
        return 0;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - own->path), own->path);
    DIR *listing = opendir(folder);
    if (!listing)
        return 0;
    unsigned goes_on = 1, opened = 0, refused = 0;
    for (const struct dirent *entry; goes_on && (entry = readdir(listing)) != NULL;) {
        size_t length = strlen(entry->d_name);
        if (length < 6 || strcmp(entry->d_name + length - 5, ".page") ||
            !strcmp(entry->d_name, slash + 1))
            continue;
        if (opened++ == MOST_PAGES) {
            refused++;
            break;
        }
        struct neighbour n = {.fd = openat(dirfd(listing), entry->d_name,
                                           flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
        enum verdict verdict = n.fd >= 0         ? judge(&n, entry->d_name, own)
                               : errno == ENOENT ? OVER
                                                 : REFUSED;
        refused += verdict == REFUSED;
        if (verdict == LIVE)
            goes_on = each(&n, context) != 0;
        if (n.fd >= 0)
            close(n.fd);
    }
    closedir(listing);
    return refused;
}

void need_note(struct page *own, unsigned row, uint64_t bytes, uint64_t group)
{
    stat_set(&own->need_row, row);
    stat_set(&own->need_group, group);
    stat_set(&own->need_bytes, bytes);
}

void need_gives(struct page *own)
{
    atomic_fetch_add(&own->gave, 1);
}

struct asking {
    const char *uuid;
    uint64_t group;
    struct need_asked *asked, last;
};

/* Has the process given nobody an answer since it was asked last and was silent? */
static int was_silent(const struct need_asked *last, uint64_t pid, uint32_t gave)
{
    for (unsigned i = 0; i < last->count; i++)
        if (last->of[i].pid == pid)
            return last->of[i].is_silent && last->of[i].before == gave;
    return 0;
}

/* Sets the request's bit and wakes the process. Only the kernel touches the mapping: where the file is
 * cut off it answers EFAULT. */
static int wake(int fd)
{
    size_t bytes = (offsetof(struct page, answer) + PAGE_PART - 1) / PAGE_PART * PAGE_PART;
    struct page *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (words == MAP_FAILED)
        return 0;
    uint32_t change = (uint32_t)FUTEX_OP_OR << 28 | (uint32_t)FUTEX_OP_CMP_EQ << 24 |
                      (uint32_t)REQUEST_GIVE << 12;
    void *request = (void *)&words->request;
    long result = syscall(SYS_futex, request, FUTEX_WAKE_OP, INT_MAX, NULL, request, change);
    munmap(words, bytes);
    return result >= 0;
}

static uint64_t given_at(const struct neighbour *n, unsigned row)
{
    return n->device_offset + (uint64_t)row * n->device_stride +
           offsetof(struct page_device, stats) +
           offsetof(struct device_stats, counter[COUNTER_given_bytes]);
}

static int ask(struct neighbour *n, void *context)
{
    struct asking *asking = context;
    struct need_asked *asked = asking->asked;
    struct need_neighbour to = {.fd = n->fd};
    uint64_t group = 0;
    unsigned row = 0;
    if (asking->group && (!READ(n->fd, group, group) || group != asking->group))
        return 1;
    while (row < n->device_count && row < PAGE_DEVICES && !is_device(n, row, asking->uuid))
        row++;
    if (row >= n->device_count || row >= PAGE_DEVICES || !READ(n->fd, to.before, gave) ||
        !READ(n->fd, to.pid, pid) || !READ(n->fd, to.start_ticks, start_ticks) ||
        !read_at(n->fd, &to.given, sizeof to.given, to.given_at = given_at(n, row)) || !wake(n->fd))
        return 1;
    to.is_silent = was_silent(&asking->last, to.pid, to.before);
    asked->of[asked->count++] = to;
    n->fd = -1;
    return asked->count < NEED_NEIGHBOURS;
}

void need_ask(const struct page *own, unsigned row, struct need_asked *asked)
{
    struct asking asking = {page_device(own, row)->uuid, stat_get(&own->need_group), asked, *asked};
    asked->count = 0;
    asked->refused = for_each(own, O_RDWR, ask, &asking);
}

enum answer { ANSWERED, GIVING, NONE };

/* A process that was giving to somebody else when it was asked gives once more after that. One that
 * is ending gives all it has. */
static enum answer answer_of(const struct need_neighbour *of)
{
    uint32_t gave, state;
    if (!READ(of->fd, gave, gave) || !READ(of->fd, state, state))
        return ANSWERED; /* cut off */
    if (gave - (of->before + of->before % 2) >= 2)
        return ANSWERED;
    if (state != PAGE_RUNNING)
        return proc_is_alive(of->pid, of->start_ticks) ? GIVING : ANSWERED;
    return gave % 2 ? GIVING : NONE;
}

struct need_answers need_answers(const struct need_asked *asked)
{
    struct need_answers answers = {0};
    for (unsigned i = 0; i < asked->count; i++) {
        enum answer answer = answer_of(&asked->of[i]);
        int is_silent = asked->of[i].is_silent && answer != ANSWERED;
        answers.answered += answer == ANSWERED;
        answers.silent += is_silent;
        answers.giving += answer == GIVING && !is_silent;
        answers.due += answer == NONE && !is_silent;
    }
    return answers;
}

void need_close(struct need_asked *asked)
{
    for (unsigned i = 0; i < asked->count; i++) {
        asked->of[i].is_silent = answer_of(&asked->of[i]) != ANSWERED;
        close(asked->of[i].fd);
    }
}

/* Keeps the largest ones, in order. */
static void keep(struct page_neighbour *most, const struct page_neighbour *one)
{
    uint64_t bytes = one->given_bytes + one->live_bytes + one->idle_bytes;
    unsigned i = PAGE_NEIGHBOURS;
    for (; i && bytes > most[i - 1].given_bytes + most[i - 1].live_bytes + most[i - 1].idle_bytes;
         i--)
        if (i < PAGE_NEIGHBOURS)
            most[i] = most[i - 1];
    if (i < PAGE_NEIGHBOURS)
        most[i] = *one;
}

void need_tell(struct page *own, unsigned row, uint64_t bytes, const struct need_asked *asked,
               uint64_t waited_ns)
{
    struct page_ask *ask = &own->ask[own->ask_count % PAGE_ASKS];
    stat_set(&ask->time_ns, 0); /* is being written */
    memset(ask->neighbour, 0, sizeof ask->neighbour);
    ask->device = page_device(own, row)->ordinal;
    ask->asked_bytes = bytes;
    ask->given_bytes = 0;
    ask->waited_ns = waited_ns;
    ask->asked = asked->count;
    ask->answered = need_answers(asked).answered;
    for (unsigned i = 0; i < asked->count; i++) {
        const struct need_neighbour *of = &asked->of[i];
        struct page_neighbour one = {.pid = of->pid};
        uint64_t given;
        if (!read_at(of->fd, &given, sizeof given, of->given_at) || given <= of->given ||
            given - of->given > page_device(own, row)->total_bytes ||
            !READ(of->fd, one.program, program))
            continue;
        one.program[sizeof one.program - 1] = 0;
        one.given_bytes = given - of->given;
        ask->given_bytes += one.given_bytes;
        keep(ask->neighbour, &one);
    }
    stat_set(&ask->time_ns, clock_ns(CLOCK_MONOTONIC) - own->start_monotonic_ns);
    stat_set(&own->ask_count, own->ask_count + 1);
}

struct holding {
    const struct page_device *own;
    struct page_oom *event;
};

static int hold(struct neighbour *n, void *context)
{
    struct holding *holding = context;
    struct page_oom *event = holding->event;
    const char *problem;
    struct page *page = page_read(n->fd, &problem);
    struct page_neighbour one = {0};
    for (unsigned row = 0; page && row < page->device_count; row++) {
        const struct page_device *device = page_device(page, row);
        if (!device->used || strcmp(device->uuid, holding->own->uuid))
            continue;
        uint64_t live = stats_current_all(&device->stats, STAT_allocated_bytes);
        uint64_t reserved = stats_current_all(&device->stats, STAT_reserved_bytes);
        if (!reserved || reserved > holding->own->total_bytes || live > reserved)
            break;
        one.pid = page->pid;
        one.live_bytes = live;
        one.idle_bytes = reserved - live;
        snprintf(one.program, sizeof one.program, "%.47s", page->program);
        event->neighbours++;
        event->neighbours_live_bytes += one.live_bytes;
        event->neighbours_idle_bytes += one.idle_bytes;
        keep(event->neighbour, &one);
        break;
    }
    if (page)
        page_close(page, 0);
    return event->neighbours < NEED_NEIGHBOURS;
}

void need_holders(const struct page *own, unsigned row, struct page_oom *event)
{
    struct holding holding = {page_device(own, row), event};
    event->neighbours = event->neighbours_live_bytes = event->neighbours_idle_bytes = 0;
    memset(event->neighbour, 0, sizeof event->neighbour);
    for_each(own, O_RDONLY, hold, &holding);
}

struct sum {
    const struct page *own;
    uint64_t *bytes;
    unsigned rows;
};

static int add(struct neighbour *n, void *context)
{
    struct sum *sum = context;
    uint64_t bytes, row, group;
    if (!READ(n->fd, bytes, need_bytes) || !READ(n->fd, row, need_row) ||
        !READ(n->fd, group, need_group) || !bytes || row >= PAGE_DEVICES ||
        (group && group != sum->own->group))
        return 1;
    for (unsigned i = 0; i < sum->rows; i++)
        if (is_device(n, (unsigned)row, page_device(sum->own, i)->uuid))
            sum->bytes[i] = sum->bytes[i] > UINT64_MAX - bytes ? UINT64_MAX : sum->bytes[i] + bytes;
    return 1;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): add writes it */
void need_of_others(const struct page *own, uint64_t *bytes, unsigned rows)
{
    struct sum sum = {own, bytes, rows};
    for_each(own, O_RDONLY, add, &sum);
}
