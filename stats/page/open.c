/* Reading the page of another process, and removing old pages. The file is hostile input: the code
 * checks every count and offset before it uses one. */
#include "stats/page/page.h"

#include "stats/events/events.h"
#include "stats/os/clock.h"
#include "stats/os/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_BYTES_MOST (64U << 20)
#define MOST_LOOKS 16 /* pages that one start opens; the next start opens others */

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

/* Whether the page has no events, or a ring that lies in the page as a whole. */
static int has_events(const struct page *page, size_t bytes)
{
    uint64_t offset = page->events_offset;
    if (!offset)
        return 1;
    if (offset % 64 || !is_table(offset, 1, sizeof(struct events), bytes))
        return 0;
    const struct events *events = page_events(page);
    uint64_t capacity = events->capacity;
    return capacity && capacity <= EVENTS_MOST && (capacity & (capacity - 1)) == 0 &&
           events->shown <= capacity && is_table(offset, 1, events_bytes(capacity), bytes) &&
           events->rows <= EVENT_ROWS && events->latest < 2;
}

/* `page` is a private copy, so that it cannot change between the check and the use. */
static const char *check_page(const struct page *page, size_t bytes)
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
        !has_events(page, bytes) ||
        (page->sites_offset && !is_table(page->sites_offset, 1, sizeof(struct sites), bytes)))
        return "is a damaged page";
    return NULL;
}

#define END(text) ((text)[sizeof(text) - 1] = '\0')

static void end_process_texts(struct page *page)
{
    END(page->tool);
    END(page->exe);
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

static void end_texts(struct page *page)
{
    end_process_texts(page);
    for (unsigned i = 0; i < PAGE_WARNINGS; i++)
        END(page->warning[i].text);
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

/* The rows of a live page change under the reader. Each is copied as a whole, together with what the
 * thread caches counted for its device. */
static void copy_rows(struct page *copy, const struct page *page)
{
    for (unsigned i = 0; i < copy->device_count; i++) {
        struct device_stats *to = &page_device(copy, i)->stats;
        uint64_t offset = copy->device_offset + (uint64_t)i * copy->device_stride;
        const struct page_device *from = (const void *)((const char *)page + offset);
        if (stats_gather(to, &from->stats, page->cache, PAGE_CACHES, i) != 0)
            to->sequence |= 1; /* so that the report can say so */
    }
    for (unsigned i = 0; i < PAGE_CACHES; i++)
        copy->cache[i].device = 0;
}

static void *map(int fd, size_t bytes, int protection)
{
    void *memory = fd < 0 ? mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                          : mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* A checked private copy of the mapped file. */
static struct page *copy_page(const struct page *mapped, size_t bytes, const char **problem)
{
    struct page *copy = map(-1, bytes, PROT_READ | PROT_WRITE);
    if (copy == NULL) {
        *problem = "does not fit into memory";
        return NULL;
    }
    memcpy(copy, mapped, bytes);
    *problem = check_page(copy, bytes);
    if (*problem != NULL) {
        munmap(copy, bytes);
        return NULL;
    }
    copy_rows(copy, mapped);
    end_texts(copy);
    return copy;
}

static struct page *open_fd(int fd, int writable, const char **problem)
{
    size_t bytes = 0;
    *problem = check_file(fd, &bytes);
    if (*problem != NULL)
        return NULL;
    struct page *mapped = map(fd, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ);
    if (mapped == NULL) {
        *problem = "cannot be mapped";
        return NULL;
    }
    struct page *copy = copy_page(mapped, bytes, problem);
    if (writable && copy != NULL) {
        munmap(copy, bytes);
        return mapped;
    }
    munmap(mapped, bytes);
    return copy;
}

struct page *page_open(const char *path, int writable, const char **problem)
{
    int flags = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    int fd = open(path, flags | (writable ? O_RDWR : O_RDONLY));
    if (fd < 0) {
        *problem = errno == ENOENT ? "does not exist" : "cannot be opened";
        return NULL;
    }
    struct page *page = open_fd(fd, writable, problem);
    close(fd);
    return page;
}

int page_is_here(const struct page *page)
{
    return page->pid_namespace == proc_namespace();
}

int page_is_alive(const struct page *page, const char *path)
{
    if (!page_is_here(page) || !proc_is_alive(page->pid, page->start_ticks))
        return 0;
    struct proc_status status;
    if (proc_status(page->pid, &status) != 0 || status.state == 'Z')
        return 1; /* the main thread ended before the others: its maps are empty */
    const char *slash = strrchr(path, '/');
    return proc_maps_file(page->pid, slash ? slash + 1 : path) != 0;
}

static int is_page_name(const char *name)
{
    size_t length = strlen(name);
    return length > 5 && strcmp(name + length - 5, ".page") == 0;
}

/* A page of another pid namespace may go once its report is written: whether its process lives cannot
 * be known here. */
static int is_removable(const struct page *page, const char *path, uint64_t before_ns)
{
    if (page->start_realtime_ns >= before_ns)
        return 0;
    return page_is_here(page) ? !page_is_alive(page, path) : page->state == PAGE_REPORTED;
}

/* A page is as old as its file or younger. This saves opening each of many pages at every start. */
static int may_be_old(int directory, const char *name, uint64_t before_ns)
{
    struct stat status;
    return fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
           (uint64_t)status.st_mtime < before_ns / 1000000000U + 1;
}

#define MAKING_SECONDS 2 /* making a page takes about a millisecond */

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

/* Returns whether it opened the page. */
static int remove_if_old(int directory, const char *name, uint64_t before_ns)
{
    const char *problem;
    if (!may_be_old(directory, name, before_ns))
        return 0;
    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    struct page *page = fd < 0 ? NULL : open_fd(fd, 0, &problem);
    if (fd >= 0)
        close(fd);
    if (page ? is_removable(page, name, before_ns) : page_is_unmade(directory, name))
        unlinkat(directory, name, 0);
    if (page)
        munmap(page, page->page_bytes);
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

void page_remove_old(const char *directory, uint64_t seconds)
{
    char own[PAGE_DIRECTORY_SIZE];
    uint64_t now = clock_ns(CLOCK_REALTIME) / 1000000000U;
    DIR *listing = opendir(directory ? directory : page_directory(own, sizeof own));
    if (listing == NULL)
        return;
    uint64_t before_ns = now > seconds ? (now - seconds) * 1000000000U : 0;
    int looks = 0;
    for (const struct dirent *entry; looks < MOST_LOOKS && (entry = readdir(listing)) != NULL;)
        /* The usual directory is empty after a boot, so the ticks in a name count from this boot. */
        if (is_page_name(entry->d_name) && (directory || !is_young(entry->d_name, seconds)))
            looks += remove_if_old(dirfd(listing), entry->d_name, before_ns);
    closedir(listing);
}
