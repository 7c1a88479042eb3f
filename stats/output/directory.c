#include "stats/output/directory.h"

#include "stats/os/pause.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

/* mkdir -p of everything before the last slash, except of the directory in which the process began:
 * where that is gone, or lies below another root, it is not made anew. */
static int make_directories(char *path, const char *cwd)
{
    size_t given = strlen(cwd);
    if (strncmp(path, cwd, given) != 0 || path[given] != '/')
        given = 0;
    for (char *slash = strchr(path + given + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int failed = mkdir(path, 0777) != 0 && errno != EEXIST && errno != EROFS && errno != EACCES;
        int error = errno;
        *slash = '/';
        if (failed)
            return -error;
    }
    return 0;
}

int output_directory_open(const struct page *page, const char *path, const char **name)
{
    char copy[OUTPUT_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    *name = slash != NULL ? slash + 1 : path;
    if (**name == '\0')
        return -EISDIR;
    if (slash == NULL)
        snprintf(copy, sizeof copy, ".");
    else if (snprintf(copy, sizeof copy, "%.*s", (int)(slash + 1 - path), path) >= (int)sizeof copy)
        return -ENAMETOOLONG;
    int error = make_directories(copy, page->cwd);
    if (error != 0)
        return error;
    int fd = open(copy, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 ? fd : -errno;
}

void output_directory_lock(int directory)
{
    for (int i = 0; i < 100 && flock(directory, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK)
            return;
        pause_ns(10000000);
    }
}
