#include "stats/os/descriptor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEAST 64

static int note(struct descriptor *to, int fd)
{
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0)
        return -1;
    *to = (struct descriptor){fd + 1, status.st_mode & S_IFMT, status.st_dev, status.st_ino};
    return 0;
}

int descriptor_take(struct descriptor *to, int fd, unsigned type)
{
    struct descriptor first;
    *to = (struct descriptor){0};
    if (note(&first, fd) != 0 || (type && first.type != type))
        return -1;
    int high = fd < LEAST ? fcntl(fd, F_DUPFD_CLOEXEC, LEAST) : -1;
    if (high < 0) {
        *to = first;
        return 0;
    }
    *to = first;
    to->fd = high + 1;
    descriptor_close(&first);
    return descriptor_is_ours(to) ? 0 : -1;
}

int descriptor_is_ours(const struct descriptor *descriptor)
{
    struct descriptor now;
    return note(&now, descriptor->fd - 1) == 0 && now.device == descriptor->device &&
           now.inode == descriptor->inode;
}

void descriptor_close(struct descriptor *descriptor)
{
    if (descriptor_is_ours(descriptor))
        close(descriptor->fd - 1);
    descriptor->fd = 0;
}
