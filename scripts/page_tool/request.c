/* cachalot-page request: sets bits in a live page, wakes the process, waits for its answer. */
#include "scripts/page_tool/page_tool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Not FUTEX_PRIVATE: the other side is another process. */
static long futex(_Atomic uint32_t *word, int operation, uint32_t value,
                  const struct timespec *timeout)
{
    return syscall(SYS_futex, (void *)word, operation, value, timeout, NULL, 0);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static uint32_t bits_of(const struct tool_options *options)
{
    uint32_t bits = options->blocks ? REQUEST_BLOCKS : 0;
    if (strcmp(options->action, "report") == 0)
        return bits | REQUEST_REPORT;
    return strcmp(options->action, "empty-cache") == 0 ? REQUEST_EMPTY_CACHE : 0;
}

/* Waits in short naps, since the process may die meanwhile. Returns 0, -ETIMEDOUT or -ESRCH. */
static int wait_for_answer(struct page *page, uint32_t before, const struct tool_options *options)
{
    static const struct timespec nap = {.tv_nsec = 100000000};
    double end = now() + options->timeout;
    while (page->answered == before) {
        if (page_is_here(page) && !page_is_alive(page, options->path))
            return -ESRCH;
        if (now() >= end)
            return -ETIMEDOUT;
        futex(&page->answered, FUTEX_WAIT, before, &nap);
    }
    return 0;
}

/* The text is in a file that others write: it is copied, ended and freed of control characters. */
static int print_answer(const struct page *page)
{
    char answer[sizeof page->answer];
    memcpy(answer, page->answer, sizeof answer);
    answer[sizeof answer - 1] = '\0';
    int failed = strncmp(answer, "error:", 6) == 0;
    for (char *c = answer; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    if (failed)
        fprintf(stderr, "cachalot-page:%s\n", answer + strlen("error:"));
    else
        puts(answer);
    return failed ? TOOL_FAILED : TOOL_DONE;
}

static int ask(struct page *page, uint32_t bits, const struct tool_options *options)
{
    unsigned long long pid = page->pid;
    uint32_t before = page->answered;
    atomic_fetch_or(&page->request, bits);
    futex(&page->request, FUTEX_WAKE, INT_MAX, NULL);
    int error = wait_for_answer(page, before, options);
    if (error == 0)
        return print_answer(page);
    atomic_fetch_and(&page->request, ~bits); /* nobody waits for it any more */
    if (error == -ESRCH)
        fprintf(stderr, "cachalot-page: process %llu ended before it answered\n", pid);
    else
        fprintf(stderr,
                "cachalot-page: process %llu did not answer within %g s; it may be "
                "stopped, or busy in the driver\n",
                pid, options->timeout);
    return TOOL_FAILED;
}

int tool_request(const struct tool_options *options)
{
    uint32_t bits = options->action != NULL ? bits_of(options) : 0;
    if (bits == 0) {
        fprintf(stderr, "cachalot-page: ask for `report` or `empty-cache`\n");
        return TOOL_USAGE;
    }
    struct page *page = tool_open(options->path, 0);
    if (page == NULL)
        return TOOL_BAD_PAGE;
    enum tool_life life =
        tool_life(page, options->path); /* we are a writer ourselves from here on */
    unsigned long long pid = page->pid;
    page_close(page, 0);
    if (life == TOOL_DEAD)
        fprintf(stderr, "cachalot-page: process %llu is not alive: harvest its page\n", pid);
    page = life == TOOL_DEAD ? NULL : tool_open(options->path, 1);
    if (page == NULL)
        return TOOL_BAD_PAGE;
    int code = ask(page, bits, options);
    page_close(page, 0);
    return code;
}
