/* cachalot-page request: sets bits in a live page, wakes the process, waits for its answer. */
#include "scripts/page_tool/page_tool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The words by which a process is asked, in its page. They are mapped, and only the kernel touches
 * them: the file may be cut off at any moment, and then it answers EFAULT. */
struct question {
    int fd;
    struct page *words;
};

/* Not FUTEX_PRIVATE: the other side is another process. */
static long futex(_Atomic uint32_t *word, int operation, uint32_t value,
                  const struct timespec *timeout)
{
    return syscall(SYS_futex, (void *)word, operation, value, timeout, NULL, 0);
}

/* Sets (FUTEX_OP_OR) or clears (FUTEX_OP_ANDN) bits of the request, and wakes who waits for it. */
static long change_request(const struct question *to, unsigned operation, uint32_t bits)
{
    void *request = (void *)&to->words->request;
    uint32_t change = operation << 28 | (uint32_t)FUTEX_OP_CMP_EQ << 24 | bits << 12;
    return syscall(SYS_futex, request, FUTEX_WAKE_OP, INT_MAX, NULL, request, change);
}

static uint32_t answered(const struct question *to)
{
    uint32_t count = 0;
    ssize_t n = pread(to->fd, &count, sizeof count, offsetof(struct page, answered));
    return n == sizeof count ? count : 0;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static uint32_t bits_of(const struct tool_options *options)
{
    static const struct {
        const char *action;
        uint32_t bits;
    } known[] = {{"empty-cache", REQUEST_EMPTY_CACHE},
                 {"sleep", REQUEST_SLEEP},
                 {"sleep-partial", REQUEST_SLEEP | REQUEST_PARTIAL},
                 {"sleep-hold", REQUEST_SLEEP | REQUEST_HOLD},
                 {"sleep-partial-hold", REQUEST_SLEEP | REQUEST_PARTIAL | REQUEST_HOLD},
                 {"wake", REQUEST_WAKE}};
    if (strcmp(options->action, "report") == 0)
        return REQUEST_REPORT | (options->blocks ? REQUEST_BLOCKS : 0);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(options->action, known[i].action) == 0)
            return known[i].bits;
    return 0;
}

/* Waits in short naps, since the process may die meanwhile. Returns 0, -ETIMEDOUT or -ESRCH. */
static int wait_for_answer(const struct question *to, uint32_t before, const struct page *page,
                           const struct tool_options *options)
{
    static const struct timespec nap = {.tv_nsec = 100000000};
    double end = now() + options->timeout;
    while (answered(to) == before) {
        if (page_is_here(page) && !page_is_alive(page, options->path))
            return -ESRCH;
        if (now() >= end)
            return -ETIMEDOUT;
        if (futex(&to->words->answered, FUTEX_WAIT, before, &nap) != 0 && errno == EFAULT)
            return -ESRCH;
    }
    return 0;
}

/* The text is in a file that others write: it is copied, ended and freed of control characters. */
static int print_answer(const struct question *to)
{
    char answer[sizeof to->words->answer] = "";
    if (pread(to->fd, answer, sizeof answer - 1, offsetof(struct page, answer)) < 0)
        answer[0] = '\0';
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

static int ask(const struct question *to, const struct page *page, uint32_t bits,
               const struct tool_options *options)
{
    unsigned long long pid = page->pid;
    uint32_t before = answered(to);
    int error = change_request(to, FUTEX_OP_OR, bits) < 0 ? -errno : 0;
    if (error == 0)
        error = wait_for_answer(to, before, page, options);
    if (error == 0)
        return print_answer(to);
    change_request(to, FUTEX_OP_ANDN, bits); /* nobody waits for it any more */
    if (error == -ESRCH)
        fprintf(stderr, "cachalot-page: process %llu ended before it answered\n", pid);
    else if (error == -ETIMEDOUT)
        fprintf(stderr,
                "cachalot-page: process %llu did not answer within %g s; it may be "
                "stopped, or busy in the driver\n",
                pid, options->timeout);
    else
        fprintf(stderr, "cachalot-page: process %llu cannot be asked: %s\n", pid, strerror(-error));
    return TOOL_FAILED;
}

int tool_request(const struct tool_options *options)
{
    uint32_t bits = options->action != NULL ? bits_of(options) : 0;
    struct question to = {.fd = -1};
    if (bits == 0) {
        fprintf(stderr, "cachalot-page: ask for `report`, `empty-cache`, `sleep` or `wake`\n");
        return TOOL_USAGE;
    }
    struct page *page = tool_open(options->path, NULL);
    if (page == NULL)
        return TOOL_BAD_PAGE;
    enum tool_life life =
        tool_life(page, options->path); /* we are a writer ourselves from here on */
    unsigned long long pid = page->pid;
    page_close(page, 0);
    if (life == TOOL_DEAD)
        fprintf(stderr, "cachalot-page: process %llu is not alive: harvest its page\n", pid);
    page = life == TOOL_DEAD ? NULL : tool_open(options->path, &to.fd);
    if (page == NULL)
        return TOOL_BAD_PAGE;
    to.words = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, to.fd, 0);
    int code = TOOL_FAILED;
    if (to.words == MAP_FAILED)
        fprintf(stderr, "cachalot-page: %s: cannot be mapped: %s\n", options->path,
                strerror(errno));
    else
        code = ask(&to, page, bits, options);
    page_close(page, 0);
    return code;
}
