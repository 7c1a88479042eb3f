#include "stats/output/directory.h"

#include "stats/os/create.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

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
        int error = create_directory(AT_FDCWD, path, 0755);
        *slash = '/';
        if (error != 0 && error != -EEXIST && error != -EROFS && error != -EACCES)
            return error;
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

int output_open_taken(int directory, const char *name, unsigned owner)
{
    struct stat status;
    if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    if (status.st_uid != owner || S_ISLNK(status.st_mode))
        return -EEXIST;
    if (!S_ISREG(status.st_mode))
        return S_ISDIR(status.st_mode) ? -EISDIR : -EINVAL;
    int fd = openat(directory, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ENOENT : -EEXIST;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == owner)
        return fd;
    close(fd);
    return -EEXIST;
}

int output_claim(int directory, const char *name, int fd)
{
    struct stat ours, there;
    errno = 0;
    return flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &ours) == 0 &&
           fstatat(directory, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

void output_add_suffix(const struct page *page, unsigned attempt, char *suffix, size_t size)
{
    char pid[32] = "", start[32] = "", again[16] = "";
    if (attempt > 0)
        snprintf(pid, sizeof pid, ".%llu", (unsigned long long)page->pid);
    if (attempt >= OUTPUT_NAMES / 2)
        snprintf(start, sizeof start, ".%llu", (unsigned long long)page->start_realtime_ns);
    if (attempt > 1)
        snprintf(again, sizeof again, ".%u", attempt);
    snprintf(suffix, size, "%s%s%s", pid, start, again);
}
