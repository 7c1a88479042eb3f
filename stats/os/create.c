#include "stats/os/create.h"

#include "stats/os/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

void create_rights_of_owner(int at, const char *name)
{
    char link[40];
    struct stat status;
    int fd = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    snprintf(link, sizeof link, "/proc/thread-self/fd/%d", fd);
    if (fstat(fd, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
        (status.st_mode & S_IRWXU) != S_IRWXU)
        chmod(link, (status.st_mode & 07777) | S_IRWXU);
    close(fd);
}

int create_directory(int at, const char *name, unsigned mode)
{
    if (mkdirat(at, name, mode) != 0)
        return -errno;
    create_rights_of_owner(at, name);
    return 0;
}

int create_new_file(int at, const char *name, unsigned mode)
{
    struct stat status;
    int fd = openat(at, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &status) == 0 && (status.st_mode & 0600) != 0600)
        fchmod(fd, (status.st_mode & 0777) | 0600);
    return fd;
}

void create_random_name(char text[17])
{
    uint64_t number;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number) /* early in the boot */
        number = clock_ns(CLOCK_MONOTONIC) * 0x9e3779b97f4a7c15u ^ (uintptr_t)&number;
    snprintf(text, 17, "%016llx", (unsigned long long)number);
}
