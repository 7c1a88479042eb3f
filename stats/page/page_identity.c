/* Who the process of a page is: pid, program, arguments, place, host. /proc/thread-self and not
 * /proc/self: that is the main thread's, and says nothing once it has ended. */
#include "stats/page/page_identity.h"

#include "stats/page/page.h"
#include "stats/os/proc.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    if (clock_gettime(clock, &now) != 0)
        return 0;
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static void copy_link(const char *link, char *to, size_t size)
{
    ssize_t n = readlink(link, to, size - 1);
    to[n > 0 ? n : 0] = '\0';
}

static void copy_arguments(struct page *page)
{
    ssize_t n = proc_read("/proc/thread-self/cmdline", page->argv, sizeof page->argv);
    page->argv_bytes = n > 0 ? (uint64_t)n : 0;
    if (n > 0 && page->argv[n - 1] != '\0') /* cut off: the NUL that proc_read set ends it */
        page->argv_bytes++;
}

static void copy_hostname(struct page *page)
{
    struct utsname name;
    if (uname(&name) == 0)
        snprintf(page->hostname, sizeof page->hostname, "%s", name.nodename);
}

void page_identity_key(struct page *page)
{
    struct proc_status status;
    page->pid = (uint64_t)getpid();
    page->start_ticks = proc_status(page->pid, &status) == 0 ? status.start_ticks : 0;
    page->pid_namespace = proc_namespace();
    page->uid = geteuid();
}

void page_identity_write(struct page *page)
{
    snprintf(page->tool, sizeof page->tool, "cachalot %s", CACHALOT_VERSION);
    page->start_realtime_ns = clock_ns(CLOCK_REALTIME);
    page->start_monotonic_ns = clock_ns(CLOCK_MONOTONIC);
    copy_link("/proc/thread-self/exe", page->exe, sizeof page->exe);
    copy_arguments(page);
    if (getcwd(page->cwd, sizeof page->cwd) == NULL)
        page->cwd[0] = '\0';
    copy_hostname(page);
}

int page_is_of_run(const struct page *page, const char *session)
{
    size_t length = strcspn(session, "/");
    return length != 0 && length == strcspn(page->session, "/") &&
           memcmp(session, page->session, length) == 0;
}
