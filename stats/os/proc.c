#include "stats/os/proc.h"

#include "stats/os/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ssize_t read_some(int fd, char *buffer, size_t size)
{
    for (;;) {
        ssize_t n = read(fd, buffer, size);
        if (n >= 0 || errno != EINTR)
            return n;
    }
}

ssize_t proc_read(const char *path, char *buffer, size_t size)
{
    buffer[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -errno;
    size_t have = 0;
    ssize_t n = 0;
    while (have + 1 < size && (n = read_some(fd, buffer + have, size - 1 - have)) > 0)
        have += (size_t)n;
    int error = n < 0 ? errno : 0;
    close(fd);
    buffer[have] = '\0';
    return error ? -error : (ssize_t)have;
}

/* The n-th blank-separated word of `text`, counted from 0. */
static const char *word(const char *text, unsigned n)
{
    while (n-- > 0) {
        text += strcspn(text, " ");
        text += strspn(text, " ");
    }
    return text;
}

int proc_status(uint64_t pid, struct proc_status *status)
{
    char path[48], text[1024];
    snprintf(path, sizeof path, "/proc/%llu/stat", (unsigned long long)pid);
    ssize_t n = proc_read(path, text, sizeof text);
    if (n < 0)
        return (int)n;
    /* The command's name may hold blanks and brackets: the fields begin after its last one. */
    const char *fields = strrchr(text, ')');
    if (fields == NULL || fields[1] != ' ' || fields[2] == '\0')
        return -EINVAL;
    fields += 2;
    status->state = fields[0];
    status->threads = strtoull(word(fields, 17), NULL, 10);
    status->start_ticks = strtoull(word(fields, 19), NULL, 10);
    return 0;
}

uint64_t proc_namespace(void)
{
    struct stat status;
    return stat("/proc/thread-self/ns/pid", &status) == 0 ? (uint64_t)status.st_ino : 0;
}

/* Looks at a line of /proc/PID/maps; not 0: it is found. */
typedef int line_look(char *line, void *data);

/* Is `line` of a file called `name`, deleted or not? */
static int line_names(char *line, void *data)
{
    static const char deleted[] = " (deleted)";
    const char *name = data;
    size_t length = strlen(line);
    if (length > sizeof deleted && strcmp(line + length - (sizeof deleted - 1), deleted) == 0)
        line[length - (sizeof deleted - 1)] = '\0';
    const char *slash = strrchr(line, '/');
    return slash != NULL && strcmp(slash + 1, name) == 0;
}

struct mapped {
    uintptr_t address;
    char *path;
    size_t size;
};

/* A name with an escaped character is not taken. */
static int line_maps(char *line, void *data)
{
    const struct mapped *mapped = data;
    char *after;
    uintptr_t begin = strtoul(line, &after, 16);
    const char *path = strchr(line, '/');
    if (*after != '-' || mapped->address < begin || mapped->address >= strtoul(after + 1, NULL, 16))
        return 0;
    if (path && !strchr(path, '\\') && strlen(path) < mapped->size)
        memcpy(mapped->path, path, strlen(path) + 1);
    return 1;
}

/* Searches the whole lines in `buffer` and moves the incomplete one to its front. Returns the length
 * of that one. */
static size_t search_lines(char *buffer, line_look *look, void *data, int *found)
{
    char *line = buffer;
    for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        *found = *found || look(line, data);
    }
    size_t rest = strlen(line);
    memmove(buffer, line, rest + 1);
    return rest;
}

static int search_maps(const char *path, uint64_t until_ns, line_look *look, void *data)
{
    char buffer[2048]; /* the stack may be small */
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int found = 0, error = 0;
    size_t have = 0;
    while (!found) {
        ssize_t n = read_some(fd, buffer + have, sizeof buffer - 1 - have);
        if (n <= 0) {
            error = n < 0 ? errno : 0;
            break;
        }
        buffer[have + (size_t)n] = '\0';
        have = search_lines(buffer, look, data, &found);
        if (have > sizeof buffer / 2) /* no path of a page is so long */
            have = 0;
        if (!found && clock_ns(CLOCK_MONOTONIC) > until_ns) {
            error = ETIME;
            break;
        }
    }
    close(fd);
    return error ? -error : found;
}

int proc_maps_file(uint64_t pid, const char *name, uint64_t until_ns)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/%llu/maps", (unsigned long long)pid);
    return search_maps(path, until_ns, line_names, (void *)name);
}

/* NOLINTNEXTLINE(readability-non-const-parameter): line_maps writes it */
void proc_mapped_file(const void *address, char *path, size_t size)
{
    struct mapped mapped = {(uintptr_t)address, path, size};
    search_maps("/proc/thread-self/maps", UINT64_MAX, line_maps, &mapped);
}

int proc_is_alive(uint64_t pid, uint64_t start_ticks)
{
    struct proc_status status;
    if (pid == 0 || pid > INT32_MAX)
        return 0;
    int error = proc_status(pid, &status);
    if (error != 0 && (kill((pid_t)pid, 0) != 0 && errno == ESRCH))
        return 0;
    if (error != 0)
        return 1;
    /* A main thread that ended before the others is a zombie; its process still runs. */
    int ended = (status.state == 'Z' || status.state == 'X') && status.threads <= 1;
    return status.start_ticks == start_ticks && !ended;
}

int proc_has_page(uint64_t pid, uint64_t start_ticks, const char *path, uint64_t until_ns)
{
    struct proc_status status;
    if (!proc_is_alive(pid, start_ticks))
        return 0;
    if (proc_status(pid, &status) != 0 || status.state == 'Z')
        return 1; /* the main thread ended before the others: its maps are empty */
    const char *slash = strrchr(path, '/');
    return proc_maps_file(pid, slash ? slash + 1 : path, until_ns) != 0;
}
