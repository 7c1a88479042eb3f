/* Removing the pages of dead processes. Each start does a little of that, in bounded time. */
#include "stats/page/page.h"

#include "stats/os/clock.h"
#include "stats/os/proc.h"
#include "stats/page/group.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_LOOKS 16    /* pages and books that one start opens */
#define MOST_PASSED 1000 /* before the first of those */
#define MOST_NS 5000000  /* that one start spends on them */
#define MAKING_SECONDS 2 /* making a page takes about a millisecond */

/* What of a page tells whether it may go. Read field by field: the file may be cut off, or large. */
struct glance {
    char magic[sizeof(((struct page *)NULL)->magic)];
    uint32_t format, header_bytes, state;
    uint64_t pid, start_ticks, pid_namespace, start_realtime_ns;
};

static int is_private_file(int fd, struct stat *status)
{
    return fstat(fd, status) == 0 && S_ISREG(status->st_mode) && status->st_uid == geteuid() &&
           (status->st_mode & 077) == 0;
}

/* Returns 0 if the file is no page of this version. */
static int glance_at(int fd, struct glance *glance)
{
#define READ(field)                                                                                \
    (pread(fd, &glance->field, sizeof glance->field, offsetof(struct page, field)) ==              \
     sizeof glance->field)
    return READ(magic) && READ(format) && READ(header_bytes) && READ(state) && READ(pid) &&
           READ(start_ticks) && READ(pid_namespace) && READ(start_realtime_ns) &&
           memcmp(glance->magic, PAGE_MAGIC, sizeof glance->magic) == 0 &&
           glance->format == PAGE_FORMAT && glance->header_bytes == sizeof(struct page);
#undef READ
}

/* A page of another pid namespace may go once its report is written: whether its process lives cannot
 * be known here. */
static int is_removable(const struct glance *glance, const char *name, uint64_t before_ns,
                        uint64_t until_ns)
{
    if (glance->start_realtime_ns >= before_ns)
        return 0;
    if (glance->pid_namespace != proc_namespace())
        return glance->state == PAGE_REPORTED;
    return !proc_has_page(glance->pid, glance->start_ticks, name, until_ns);
}

int page_is_unmade(int directory, const char *name)
{
    unsigned long long pid, start;
    char magic[sizeof(((struct page *)NULL)->magic)] = {0};
    static const char none[sizeof magic];
    struct stat status;
    const char *slash = strrchr(name, '/');
    if (sscanf(slash ? slash + 1 : name, "%20llu.%20llu.", &pid, &start) != 2 ||
        proc_is_alive(pid, start))
        return 0;
    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    int unmade =
        fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
        status.st_uid == geteuid() &&
        (uint64_t)status.st_mtime + MAKING_SECONDS <= clock_ns(CLOCK_REALTIME) / 1000000000U &&
        read(fd, magic, sizeof magic) >= 0 && memcmp(magic, none, sizeof magic) == 0;
    if (fd >= 0)
        close(fd);
    return unmade;
}

static int ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), least = strlen(end);
    return length > least && strcmp(name + length - least, end) == 0;
}

/* A page is as old as its file or younger. This saves opening each of many pages at every start. */
static int may_be_old(int directory, const char *name, uint64_t before_ns)
{
    struct stat status;
    return fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
           (uint64_t)status.st_mtime < before_ns / 1000000000U + 1;
}

/* Returns whether it opened the page. */
static int remove_if_old(int directory, const char *name, uint64_t before_ns, uint64_t until_ns)
{
    struct glance glance;
    struct stat status;
    if (!may_be_old(directory, name, before_ns))
        return 0;
    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return 1;
    int is_page = is_private_file(fd, &status) && glance_at(fd, &glance);
    close(fd);
    if (is_page ? is_removable(&glance, name, before_ns, until_ns)
                : page_is_unmade(directory, name))
        unlinkat(directory, name, 0);
    return 1;
}

const char *page_directory(char *buffer, size_t size)
{
    snprintf(buffer, size, "/dev/shm/cachalot-%u", (unsigned)geteuid());
    return buffer;
}

/* Whether the process of a page began less than `seconds` ago, by the page's name alone. */
static int is_young(const char *name, uint64_t seconds)
{
    const char *dot = strchr(name, '.');
    uint64_t ticks = getauxval(AT_CLKTCK);
    uint64_t begin = dot && ticks ? strtoull(dot + 1, NULL, 10) / ticks : 0;
    uint64_t now = clock_ns(CLOCK_BOOTTIME) / 1000000000U;
    return begin <= now && now - begin < seconds;
}

/* How many of them to pass over: another start opens others. Else files that cannot be removed would
 * keep all behind them. */
static unsigned pages_to_pass(DIR *listing)
{
    unsigned count = 0;
    for (const struct dirent *entry;
         count < MOST_PASSED + MOST_LOOKS && (entry = readdir(listing)) != NULL;)
        count +=
            (unsigned)(ends_with(entry->d_name, ".page") || ends_with(entry->d_name, ".group"));
    rewinddir(listing);
    uint64_t any = clock_ns(CLOCK_MONOTONIC) / 1000;
    return count > MOST_LOOKS ? (unsigned)(any % (count - MOST_LOOKS + 1)) : 0;
}

void page_remove_old(const char *directory, uint64_t seconds)
{
    char own[PAGE_DIRECTORY_SIZE];
    uint64_t now = clock_ns(CLOCK_REALTIME) / 1000000000U;
    uint64_t until_ns = clock_ns(CLOCK_MONOTONIC) + MOST_NS;
    DIR *listing = opendir(directory ? directory : page_directory(own, sizeof own));
    if (listing == NULL)
        return;
    uint64_t before_ns = now > seconds ? (now - seconds) * 1000000000U : 0;
    unsigned looks = 0, pass = pages_to_pass(listing);
    for (const struct dirent *entry; looks < MOST_LOOKS && clock_ns(CLOCK_MONOTONIC) < until_ns &&
                                     (entry = readdir(listing)) != NULL;) {
        int is_page = ends_with(entry->d_name, ".page");
        if ((!is_page && !ends_with(entry->d_name, ".group")) || (pass && pass--))
            continue;
        /* The usual directory is empty after a boot, so the ticks in a name count from this boot. */
        if (!is_page)
            looks++, group_remove(dirfd(listing), entry->d_name);
        else if (directory || !is_young(entry->d_name, seconds))
            looks += (unsigned)remove_if_old(dirfd(listing), entry->d_name, before_ns, until_ns);
    }
    closedir(listing);
}
