#include "interpose/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "interpose/process/private_files.h"

struct process process;
static const struct wiped wiped WIPED_ENTRY = {&process, sizeof process};
_Thread_local int process_inside;
static _Atomic int enabled = -1, loaded;
static _Atomic pid_t
    reached; /* survives a fork: the child of a CUDA program has libcuda mapped too */

void process_load(void)
{
    if (atomic_load(&loaded))
        return;
    config_note_start();
    wiped_from_now(&wiped);
    atomic_store(&loaded, 1);
    /* Lanes need this registration. In a process with threads the kernel takes 10 to 20 ms for
     * it. */
    if (config_enabled())
        syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
}

int process_enabled(void)
{
    int known = atomic_load_explicit(&enabled, memory_order_relaxed);
    if (known < 0) {
        known = config_enabled();
        atomic_store(&enabled, known);
    }
    if (known && !atomic_load_explicit(&loaded, memory_order_acquire))
        process_load();
    return known;
}

void process_count(enum coverage_kind kind)
{
    if (!atomic_load_explicit(&reached, memory_order_relaxed))
        atomic_store_explicit(&reached, getpid(), memory_order_relaxed);
    stat_value *counter = process.page ? &process.page->coverage[kind] : &process.early[kind];
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

uint64_t process_thread_id(void)
{
    static _Thread_local uint64_t id;
    static _Atomic uint64_t last;
    if (!id)
        id = atomic_fetch_add(&last, 1) + 1;
    return id;
}

void process_note_unseen(const char *way)
{
    struct page *page = process.page;
    if (atomic_fetch_add(&page->coverage[COVERAGE_unseen_work], 1) || page->coverage_note[0])
        return;
    snprintf(page->coverage_note, sizeof page->coverage_note,
             "work reaches the device past us: %s. From then on freed memory is not reused before "
             "all work has finished",
             way);
    PAGE_TELL(page, coverage_note);
    process_warn("%s", page->coverage_note);
}

pid_t process_first_reached(void)
{
    return atomic_load(&reached);
}

/* As write, without the signals of a pipe that nobody reads and of a file size limit: they would
 * end the program. */
static void write_quietly(int fd, const char *text, size_t length)
{
    static const struct timespec at_once;
    sigset_t ours, before, pending;
    sigemptyset(&ours);
    sigaddset(&ours, SIGPIPE);
    sigaddset(&ours, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &ours, &before);
    sigpending(&pending);
    if (write(fd, text, length) < 0 && (errno == EPIPE || errno == EFBIG)) {
        int raised = errno == EPIPE ? SIGPIPE : SIGXFSZ;
        sigemptyset(&ours);
        sigaddset(&ours, raised);
        if (!sigismember(&pending, raised))
            sigtimedwait(&ours, NULL, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

struct line {
    char text[320];
    size_t length;
};

static void append(void *what)
{
    const struct line *line = what;
    const char *log = process.config.log;
    int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    int fd = !strcmp(log, "stderr") ? files_stderr() : open(log, flags, 0600);
    if (fd < 0)
        return;
    write_quietly(fd, line->text, line->length);
    if (fd != STDERR_FILENO || files_are_apart())
        close(fd);
}

/* The file is opened for each line, in a table of descriptors that the program does not see. */
void process_log(const char *text)
{
    struct line line;
    int cancel;
    if (!*process.config.log)
        return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    int n = snprintf(line.text, sizeof line.text, "cachalot[%d]: %s\n", process.pid, text);
    line.length = (size_t)n < sizeof line.text ? (size_t)n : sizeof line.text - 1;
    if (files_are_apart() || !strcmp(process.config.log, "stderr"))
        append(&line);
    else
        files_run(append, &line);
    pthread_setcancelstate(cancel, &cancel);
}

void process_warn(const char *format, ...)
{
    char text[248];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    page_warn(process.page, "%s", text);
    process_log(text);
}
