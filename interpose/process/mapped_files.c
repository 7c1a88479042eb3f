#include "interpose/process/mapped_files.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define BLOCK 4096

int mapped_files_hold(const char *name)
{
    char buffer[BLOCK + 64];
    size_t kept = 0, overlap = strnlen(name, 64);
    ssize_t got;
    int found = 0, fd = open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && !found && (got = read(fd, buffer + kept, BLOCK)) > 0) {
        size_t length = kept + (size_t)got;
        found = memmem(buffer, length, name, overlap) != NULL;
        kept = length < overlap ? length : overlap;
        memmove(buffer, buffer + length - kept, kept);
    }
    if (fd >= 0)
        close(fd);
    return found;
}
