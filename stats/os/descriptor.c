#include "stats/os/descriptor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

/* The copy is looked at, since programs do not come to its number: another thread may close `fd` and
 * open a file there at any moment. */
int descriptor_take(struct descriptor *to, int fd, unsigned type)
{
    int high = fd >= 0 && fd < LEAST ? fcntl(fd, F_DUPFD_CLOEXEC, LEAST) : -1;
    *to = (struct descriptor){0};
    int is_right = note(to, high >= 0 ? high : fd) == 0 && (!type || to->type == type);
    struct descriptor first = *to;
    first.fd = fd + 1;
    if (high >= 0 && is_right)
        descriptor_close(&first);
    else if (high >= 0)
        syscall(SYS_close, high);
    if (!is_right)
        to->fd = 0;
    return is_right ? 0 : -1;
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
        syscall(SYS_close, descriptor->fd - 1); /* close is a point of cancellation */
    descriptor->fd = 0;
}
