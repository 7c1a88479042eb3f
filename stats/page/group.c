#include "stats/page/group.h"

#include "stats/os/clock.h"
#include "stats/os/file_limit.h"
#include "stats/os/pause.h"
#include "stats/os/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x3170756f72476843) /* ChGroup1 */
#define MOST ((uint64_t)1 << 56)           /* bytes of a line; more is damage */
#define MOST_NS 1000000000                 /* to take a line, while others remove the books */

static const char comes_and_goes[] = "its books come and go",
                  no_line[] = "its books have no line free";

static int lock(int fd, int type, uint64_t start, uint64_t bytes)
{
    struct flock range = {.l_type = (short)type,
                          .l_whence = SEEK_SET,
                          .l_start = (off_t)start,
                          .l_len = (off_t)bytes};
    return fcntl(fd, F_OFD_SETLK, &range);
}

static uint64_t place_of(unsigned line)
{
    return offsetof(struct group_books, line) + line * sizeof(struct group_line);
}

/* FNV-1a, 64 bits. */
static uint64_t hash(const char *text)
{
    uint64_t number = UINT64_C(0xcbf29ce484222325);
    for (; *text; text++)
        number = (number ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return number ? number : 1;
}

/* The inode of a cgroup is the same in all namespaces; its path is not. */
uint64_t group_number(const char *name)
{
    char text[1024], path[1100], line[32];
    struct stat status;
    if (*name)
        return hash(name);
    ssize_t n = proc_read("/proc/self/cgroup", text, sizeof text);
    char *own = n > 0 ? strstr(text, "0::/") : NULL;
    if (!own || (own != text && own[-1] != '\n'))
        return hash(n > 0 ? text : "");
    own[strcspn(own, "\n")] = 0;
    snprintf(path, sizeof path, "/sys/fs/cgroup%s", own + 3);
    if (stat(path, &status))
        return hash(own);
    snprintf(line, sizeof line, "cgroup %llu", (unsigned long long)status.st_ino);
    return hash(line);
}

/* Is the file this user's alone, and what its name says? */
static const char *check(int fd, const char *path, struct stat *status)
{
    struct stat there;
    if (fstat(fd, status) || !S_ISREG(status->st_mode) || status->st_uid != geteuid() ||
        (status->st_mode & 077) || status->st_nlink > 1)
        return "its books are another user's, or open to others";
    if ((status->st_mode & 0600) != 0600) /* the umask's doing */
        fchmod(fd, 0600);
    if (status->st_size && status->st_size != sizeof(struct group_books))
        return "its books are damaged";
    return fstatat(AT_FDCWD, path, &there, AT_SYMLINK_NOFOLLOW) || there.st_ino != status->st_ino ||
                   there.st_dev != status->st_dev
               ? comes_and_goes
               : NULL;
}

/* All room is taken at once, since a hole that cannot be filled later is a SIGBUS. A new file has
 * zeroes: books without a line. */
static const char *map(struct group *group, int fd)
{
    uint64_t none = 0;
    if (posix_fallocate(fd, 0, sizeof(struct group_books)))
        return "its books find no room beside the pages";
    void *memory =
        mmap(NULL, sizeof(struct group_books), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return "its books find no memory";
    madvise(memory, sizeof(struct group_books), MADV_DONTFORK); /* it would hold the lock on */
    group->books = memory;
    if (!atomic_compare_exchange_strong(&group->books->magic, &none, MAGIC) && none != MAGIC) {
        munmap(memory, sizeof(struct group_books));
        group->books = NULL;
        return "its books are damaged";
    }
    return NULL;
}

/* Takes a line. The mapping keeps the lock after the descriptor is closed. */
static const char *take_line(struct group *group, int fd)
{
    const char *problem = map(group, fd);
    if (problem)
        return problem;
    for (unsigned i = 0; i < GROUP_MEMBERS; i++)
        if (lock(fd, F_WRLCK, place_of(i), 1) == 0) {
            struct group_line *line = &group->books->line[i];
            atomic_store(&line->pending, 0);
            atomic_store(&line->held, 0);
            group->own = i;
            return NULL;
        }
    int error = errno;
    munmap(group->books, sizeof(struct group_books));
    group->books = NULL;
    return error == EAGAIN || error == EACCES ? no_line : "the system has no locks for its books";
}

static const char *try_open(struct group *group)
{
    struct stat status;
    int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    int fd = open(group->path, flags, 0600);
    if (fd < 0)
        return "its books cannot be opened";
    const char *problem = check(fd, group->path, &status);
    if (!problem)
        problem = take_line(group, fd);
    if (!problem && (problem = check(fd, group->path, &status)) != NULL) { /* removed meanwhile */
        munmap(group->books, sizeof(struct group_books));
        group->books = NULL;
    }
    group->file[0] = status.st_dev;
    group->file[1] = status.st_ino;
    close(fd);
    return problem;
}

const char *group_open(struct group *group, const struct page *own, const char *uuid,
                       uint64_t number)
{
    const char *slash = strrchr(own->path, '/');
    if (!slash)
        return "this process has no page with a name";
    int n = snprintf(group->path, sizeof group->path, "%.*s/%016llx.%s.group",
                     (int)(slash - own->path), own->path, (unsigned long long)number, uuid);
    if (n < 0 || (size_t)n >= sizeof group->path || strchr(uuid, '/'))
        return "the path of its books is too long";
    if (!file_limit_allows(sizeof(struct group_books)))
        return "RLIMIT_FSIZE is smaller than its books";
    const char *problem;
    uint64_t begin = clock_ns(CLOCK_MONOTONIC);
    while (problem = try_open(group), (problem == comes_and_goes || problem == no_line) &&
                                          clock_ns(CLOCK_MONOTONIC) - begin < MOST_NS)
        pause_ns(100000);
    return problem;
}

struct sums {
    uint64_t held, pending;
};

/* Adds up what others have. A claim first becomes held and then ceases to be pending: in this order
 * none is missed. Returns -1 if the books are damaged. */
static int add_up(const struct group *group, struct sums *sums)
{
    *sums = (struct sums){0};
    for (unsigned i = 0; i < GROUP_MEMBERS; i++) {
        const struct group_line *line = &group->books->line[i];
        uint64_t pending = atomic_load(&line->pending), held = atomic_load(&line->held);
        if (i == group->own)
            continue;
        if (pending > MOST || held > MOST)
            return -1;
        sums->pending += pending;
        sums->held += held;
    }
    return atomic_load(&group->books->magic) == MAGIC ? 0 : -1;
}

enum group_answer group_claim(struct group *group, uint64_t bytes)
{
    struct group_line *line = &group->books->line[group->own];
    struct sums others;
    int may = bytes <= group->limit && group->held <= group->limit - bytes;
    uint64_t room = may ? group->limit - group->held - bytes : 0;
    atomic_store(&line->pending, may ? bytes : 0);
    int code = add_up(group, &others), has = !code && may && others.held + others.pending <= room;
    if (has)
        atomic_store(&line->held, group->held += bytes);
    atomic_store(&line->pending, 0);
    return code                         ? GROUP_DAMAGED
           : has                        ? GROUP_HAS
           : may && others.held <= room ? GROUP_BUSY
                                        : GROUP_FULL;
}

void group_give(struct group *group, uint64_t bytes)
{
    group->held -= bytes < group->held ? bytes : group->held;
    atomic_store(&group->books->line[group->own].held, group->held);
}

uint64_t group_bytes(const struct group *group)
{
    struct sums others;
    return add_up(group, &others) ? UINT64_MAX : others.held + others.pending + group->held;
}

int group_bury(const struct group *group)
{
    struct stat status;
    int buried = 0, fd = open(group->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || check(fd, group->path, &status) || status.st_dev != group->file[0] ||
        status.st_ino != group->file[1] || !status.st_size)
        buried = -1;
    for (unsigned i = 0; i < GROUP_MEMBERS && buried >= 0; i++) {
        struct group_line *line = &group->books->line[i];
        if (i == group->own || !(atomic_load(&line->held) | atomic_load(&line->pending)) ||
            lock(fd, F_RDLCK, place_of(i), 1) != 0) /* others may bury it at the same moment */
            continue;
        atomic_store(&line->pending, 0);
        atomic_store(&line->held, 0);
        lock(fd, F_UNLCK, place_of(i), 1);
        buried = 1;
    }
    if (fd >= 0)
        close(fd);
    return buried;
}

/* Is it the name of books? */
static int is_named(const char *name)
{
    const char *dot = strchr(name, '.');
    return strspn(name, "0123456789abcdef") == 16 && dot == name + 16 &&
           strncmp(dot, ".GPU-", 5) == 0;
}

void group_remove(int directory, const char *name)
{
    struct stat status;
    uint64_t magic;
    int flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    int fd = is_named(name) ? openat(directory, name, flags) : -1;
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
        status.st_uid == geteuid() && status.st_size == sizeof(struct group_books) &&
        pread(fd, &magic, sizeof magic, 0) == sizeof magic && magic == MAGIC &&
        lock(fd, F_WRLCK, 0, sizeof(struct group_books)) == 0)
        unlinkat(directory, name, 0);
    if (fd >= 0)
        close(fd);
}
