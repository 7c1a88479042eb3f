#include "stats/os/host_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stats/os/proc.h"

/* The number behind `name` in lines of names and numbers; 0: there is none. */
static uint64_t number_of(const char *text, const char *name)
{
    const char *line = strstr(text, name);
    return line ? strtoull(line + strlen(name), NULL, 10) : 0;
}

/* Reads a file of the control group. Returns -1 if it has none. */
static int read_of_group(const char *group, const char *file, char *text, size_t size)
{
    char path[512];
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", group, file);
    return proc_read(path, text, size) > 0 ? 0 : -1;
}

/* The limit of a control group. Files that it has read are given up when memory is short, so they
 * count as available. */
static void take_group(struct host_memory *memory, const char *group)
{
    char text[8192];
    if (read_of_group(group, "memory.max", text, sizeof text))
        return;
    uint64_t most = strtoull(text, NULL, 10); /* "max" is 0 */
    if (!most || most > memory->total || read_of_group(group, "memory.current", text, sizeof text))
        return;
    uint64_t used = strtoull(text, NULL, 10);
    uint64_t files = read_of_group(group, "memory.stat", text, sizeof text)
                         ? 0
                         : number_of(text, "\ninactive_file ");
    uint64_t left = most > used ? most - used + files : files;
    memory->total = most;
    if (left < memory->available)
        memory->available = left;
}

/* The limits of the process's own control group, and of all above it. */
static void take_groups(struct host_memory *memory)
{
    char own[512];
    if (proc_read("/proc/self/cgroup", own, sizeof own) <= 0)
        return;
    char *line = strstr(own, "0::"), *group = line ? line + 3 : NULL;
    for (char *end = group ? group + strcspn(group, "\n") : NULL; end; end = strrchr(group, '/')) {
        *end = '\0';
        take_group(memory, group);
    }
}

int host_memory_read(struct host_memory *memory)
{
    char text[2048];
    if (proc_read("/proc/meminfo", text, sizeof text) <= 0)
        return -1;
    memory->total = number_of(text, "MemTotal:") * 1024;
    memory->available = number_of(text, "MemAvailable:") * 1024;
    if (!memory->total || !memory->available)
        return -1;
    take_groups(memory);
    return 0;
}
