/* Whether the process of a page lives, in whatever container. */
#include "scripts/page_tool/page_tool.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Whether any process of this machine has the file open or mapped for writing: then the kernel refuses
 * a lease for reading. No number in the file can deceive it, and exec, a kill and a container's end undo
 * the mapping. Returns 1, 0, or -1 where leases are not to be had. SIGIO, which tells of a broken lease,
 * is ignored. */
static int has_writer(const char *path)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -1;
    int free = fcntl(fd, F_SETLEASE, F_RDLCK) == 0;
    int answer = free ? 0 : errno == EAGAIN ? 1 : -1;
    close(fd); /* and with it the lease */
    return answer;
}

enum tool_life tool_life(const struct page *page, const char *path)
{
    int writer = has_writer(path);
    if (writer >= 0)
        return writer ? TOOL_ALIVE : TOOL_DEAD;
    if (page == NULL || !page_is_here(page))
        return TOOL_ELSEWHERE;
    return page_is_alive(page, path) ? TOOL_ALIVE : TOOL_DEAD;
}
