/* What /proc says about a process. Takes no lock and no memory, so that any thread may ask at any
 * time. */
#ifndef CACHALOT_STATS_OS_PROC_H
#define CACHALOT_STATS_OS_PROC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct proc_status {
    char state; /* R, S, Z … */
    uint64_t threads, start_ticks;
};

/* Reads a small file, at most size - 1 bytes, and ends it with NUL. Returns the bytes read or
 * -errno. */
ssize_t proc_read(const char *path, char *buffer, size_t size);

/* Fields 3, 20 and 22 of /proc/PID/stat. Returns 0 or -errno: -ENOENT, -ESRCH when there is no
 * such process. */
int proc_status(uint64_t pid, struct proc_status *status);

/* Inode of this process's pid namespace; 0 where /proc does not say. */
uint64_t proc_namespace(void);

/* Whether process `pid` maps a file whose path ends with /`name`: 1, 0, or -errno where its maps
 * cannot be read, -ETIME where they are not read by `until_ns` (CLOCK_MONOTONIC). */
int proc_maps_file(uint64_t pid, const char *name, uint64_t until_ns);

/* Writes the file that is mapped at `address` of this process into `path`, which stays as it is
 * where that is not known. */
void proc_mapped_file(const void *address, char *path, size_t size);

/* Whether the process with that pid and start still runs, as far as /proc or kill(pid, 0) can
 * tell. */
int proc_is_alive(uint64_t pid, uint64_t start_ticks);

/* Whether that process runs and still maps the file `path`, which an exec ends. 1 where that cannot be
 * known, or not by `until_ns`. */
int proc_has_page(uint64_t pid, uint64_t start_ticks, const char *path, uint64_t until_ns);

#endif
