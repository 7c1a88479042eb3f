/* The directory of an output file, and names that are taken in it. */
#ifndef CACHALOT_STATS_OUTPUT_DIRECTORY_H
#define CACHALOT_STATS_OUTPUT_DIRECTORY_H

#include "stats/page/layout.h"

#define OUTPUT_PATH_BYTES 1280
#define OUTPUT_NAMES                                                                               \
    16 /* that a file tries where names are taken; later ones are its process's own */
#define OUTPUT_SUFFIX_BYTES 64

/* Opens the directory of `path`. Makes what is missing of it, except the directory in which the
 * process of `page` began. Returns it or -errno; *name is the last component. */
int output_directory_open(const struct page *page, const char *path, const char **name);

/* What the `attempt`th name of a file adds to its wanted name: nothing, .PID, .PID.2 and so on. Later
 * ones have the time of the start too, since containers that share a directory may have equal pids. */
void output_add_suffix(const struct page *page, unsigned attempt, char *suffix, size_t size);

/* Opens a regular file of user `owner` that may be an output of ours. -ENOENT: there is none. -EEXIST:
 * take another name; what lies there is a link or another user's, and was not opened. Another -errno:
 * no output can be there. */
int output_open_taken(int directory, const char *name, unsigned owner);

/* Whether this process alone may replace the open file, which still has that name. Never waits: the
 * lock that it takes ends when `fd` is closed, and others may hold one for ever. If not, errno is
 * EWOULDBLOCK: another process has the lock; 0 or ENOENT: another file has the name; else that of a
 * file system without locks. */
int output_claim(int directory, const char *name, int fd);

#endif
