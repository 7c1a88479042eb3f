/* Putting the report into its file: a temporary one beside it, then renamed. */
#include "stats/output/report.h"

#include "stats/os/pause.h"
#include "stats/output/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* mkdir -p of everything before the last slash, but not of the directory in which the process
 * began: where that is gone (or another root has none such), it is not made anew. */
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

int report_file_directory(const struct page *page, const char *path, const char **name)
{
    char copy[REPORT_PATH_BYTES];
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

/* A file past the limit is not an error but a SIGXFSZ, which would kill the program. */
static int is_within_file_limit(size_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes <= limit.rlim_cur;
}

static int write_all(int fd, const char *text, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, text, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        text += n;
        size -= (size_t)n;
    }
    return 0;
}

static int create_temporary(int directory, char *name, size_t size)
{
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    for (unsigned i = 0; i < REPORT_CANDIDATES; i++) {
        snprintf(name, size, ".cachalot.%ld.%u.tmp", (long)getpid(), i);
        int fd = openat(directory, name, flags, 0644);
        if (fd >= 0)
            return fd;
        if (errno != EEXIST)
            return -errno;
    }
    return -EEXIST;
}

/* Writes `text` into a new file of the directory. Returns 0 with its name in `temporary`, or
 * -errno. */
static int write_file(int directory, const char *text, char *temporary, size_t size)
{
    size_t length = strlen(text);
    if (!is_within_file_limit(length))
        return -EFBIG;
    int fd = create_temporary(directory, temporary, size);
    if (fd < 0)
        return fd;
    int error = write_all(fd, text, length);
    if (close(fd) != 0 && error == 0) /* where a network file system says that it is full */
        error = -errno;
    if (error != 0)
        unlinkat(directory, temporary, 0);
    return error;
}

void report_file_lock(int directory)
{
    for (int i = 0; i < 100 && flock(directory, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK)
            return;
        pause_ns(10000000);
    }
}

/* Gives the temporary file the first name that it may have. */
static int put_in_place(int directory, const char *temporary, const struct page *page,
                        const struct report_options *options, char *path, size_t size)
{
    int error = -EEXIST;
    for (unsigned attempt = 0; attempt < REPORT_CANDIDATES; attempt++) {
        int answer = report_file_name(page, options, attempt, path, size);
        if (answer < 0)
            return answer;
        const char *slash = strrchr(path, '/');
        const char *name = slash != NULL ? slash + 1 : path;
        answer = report_file_may_replace(directory, name, page);
        if (answer < 0)
            return answer;
        if (answer > 0 && renameat(directory, temporary, directory, name) == 0)
            return 0;
        if (answer > 0 && errno != EPERM && errno != EACCES) /* another's, in a sticky folder */
            return -errno;
        if (answer > 0)
            error = -errno;
    }
    return error;
}

static int write_text(const char *text, const struct page *page,
                      const struct report_options *options, char *path, size_t size)
{
    char temporary[64];
    const char *name;
    int error = report_file_name(page, options, 0, path, size);
    int directory = error == 0 ? report_file_directory(page, path, &name) : error;
    if (directory < 0)
        return directory;
    error = write_file(directory, text, temporary, sizeof temporary);
    if (error == 0) {
        report_file_lock(directory);
        error = put_in_place(directory, temporary, page, options, path, size);
        if (error != 0)
            unlinkat(directory, temporary, 0);
    }
    close(directory); /* and with it the lock */
    return error;
}

/* CACHALOT_OUTPUT=/dev/null: as if it had been written. */
static int is_unwanted(const struct page *page, const struct report_options *options)
{
    return options->output == NULL && strcmp(page->output, "/dev/null") == 0;
}

int report_write(const struct snapshot *snapshot, const struct report_options *options, char *path,
                 size_t size)
{
    if (is_unwanted(snapshot->page, options)) {
        snprintf(path, size, "/dev/null");
        return 0;
    }
    int before = errno;
    char *text = report_text(snapshot, options);
    int error = text != NULL ? write_text(text, snapshot->page, options, path, size) : -ENOMEM;
    free(text);
    errno = before;
    return error;
}
