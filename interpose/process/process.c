#include "interpose/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "interpose/process/private_files.h"
#include "interpose/resolve/loaded_objects.h"
#include "interpose/resolve/real_driver.h"
#include "interpose/lifecycle/trace_writer.h"
#include "interpose/lifecycle/service.h"
#include "interpose/stream/submit.h"

#define OLD_PAGE_SECONDS (7 * 24 * 3600)

struct process *process;
_Thread_local int process_inside;
static _Atomic int enabled = -1;
static _Atomic pid_t
    reached; /* survives a fork: the child of a CUDA program has libcuda mapped, too */

static void wipe(void)
{
    memset(process, 0, sizeof *process);
    submitter.alone = NULL;
}

/* In the constructor, or before it, when the constructor of a library uses CUDA. */
static void load(void)
{
    struct process *none = NULL;
    real_may_open();
    if (__atomic_load_n(&process, __ATOMIC_ACQUIRE))
        return;
    void *memory =
        mmap(NULL, sizeof *process, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return;
    config_note_start();
    int wiped = madvise(memory, sizeof *process, MADV_WIPEONFORK) == 0;
    if (!__atomic_compare_exchange_n(&process, &none, memory, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        munmap(memory, sizeof *process);
    else if (!wiped)
        pthread_atfork(NULL, NULL, wipe);
    /* What lanes need. Once there are threads, the kernel takes 10 to 20 ms for it. */
    if (config_enabled())
        syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
}

/* Also where nothing is to be done each call is passed on, by loaded_objects.c. */
__attribute__((constructor)) static void loaded(void)
{
    objects_prepare();
    load();
}

int process_enabled(void)
{
    int known = atomic_load_explicit(&enabled, memory_order_relaxed);
    if (known < 0) {
        known = config_enabled();
        atomic_store(&enabled, known);
    }
    if (known && !process)
        load();
    return known && process;
}

void process_count(enum coverage_kind kind)
{
    if (!atomic_load_explicit(&reached, memory_order_relaxed))
        atomic_store_explicit(&reached, getpid(), memory_order_relaxed);
    stat_value *counter = process->page ? &process->page->coverage[kind] : &process->early[kind];
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* As write, to a pipe that nobody reads and beyond a limit too: its signal would end the program. */
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

/* One line to CACHALOT_LOG. Opened each time: nothing of ours stays open in the host. */
static void log_line(const char *text)
{
    const char *log = process->config.log;
    char line[320];
    if (!*log)
        return;
    int n = snprintf(line, sizeof line, "cachalot[%d]: %s\n", process->pid, text);
    size_t length = (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
    int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    int fd = !strcmp(log, "stderr") ? files_stderr() : open(log, flags, 0600);
    if (fd < 0)
        return;
    write_quietly(fd, line, length);
    files_close(fd);
}

void process_warn(const char *format, ...)
{
    char text[248];
    int cancel;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    page_warn(process->page, "%s", text);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    log_line(text);
    pthread_setcancelstate(cancel, &cancel);
}

static void on_exit_begin(int status, void *unused)
{
    (void)unused;
    if (!process_serving() || getpid() != process->pid)
        return;
    /* Of a handler that interrupted us: what this thread is in, it never leaves, and others may wait
     * for that. */
    if (domain_thread_is_inside(process->domain))
        process_inside++;
    if (!process_inside)
        domain_poll(process->domain); /* the last legal moment for a call of ours */
    atomic_store(&process->page->exit_code, status & 0xff);
    atomic_store(&process->page->state, PAGE_EXITING);
    atomic_store(&process->state, PROCESS_EXITING);
    service_watch_end();
}

__attribute__((destructor)) static void unload(void)
{
    if (!process_enabled())
        return;
    pid_t pid = getpid(), by = atomic_load(&reached);
    int cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE,
                           &cancel); /* a thread that ends in here ends no exit */
    if (process_state() != PROCESS_IDLE && pid == process->pid) {
        service_report_exit();
        service_watch_end();
    } else if (process_state() == PROCESS_IDLE && (!by || by == pid)) {
        service_report_none();
    }
    pthread_setcancelstate(cancel, &cancel);
}

/* Everything that lasts for the process's life. Caller holds the start lock. Returns 0 if it can
 * serve. */
static int begin(void)
{
    const char *problem = NULL;
    int count = 0;
    if (real()->cuDeviceGetCount(&count) != CUDA_SUCCESS || count < 1)
        return -1;
    static int lives; /* a child that is made without fork may have its parent's pid, too */
    process->pid = getpid();
    process->life = ++lives;
    atomic_store(&process->generation, ((uint64_t)process->life << 32) + 1);
    config_read(&process->config);
    process->page = recording_page((unsigned)count, &problem);
    if (!process->page)
        return -1;
    if (problem)
        process_warn("the live page: %s", problem);
    config_publish(&process->config, process->page);
    process->domain = domain_create(&process->config.options);
    if (!process->domain) {
        page_close(process->page, 1);
        process->page = NULL;
        return -1;
    }
    recording_start();
    submit_start();
    for (enum coverage_kind kind = 0; kind < COVERAGE_KINDS; kind++)
        atomic_fetch_add(&process->page->coverage[kind], atomic_exchange(&process->early[kind], 0));
    atomic_store(&process->page->state, PAGE_RUNNING);
    page_remove_old(config_page_dir(&process->config), OLD_PAGE_SECONDS);
    return 0;
}

void process_start(void)
{
    /* Inside: a tool that the driver calls back, within what `begin` asks of it, initialises too. */
    if (!process_enabled() || process_state() != PROCESS_IDLE || process_inside)
        return;
    int error = errno, cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE,
                           &cancel); /* a thread that ends in here keeps the lock */
    process_inside++;
    pthread_mutex_lock(&process->start_lock);
    /* Without the handler nobody would tell us when to end: then nothing is begun. */
    if (process_state() == PROCESS_IDLE && !process->page && on_exit(on_exit_begin, NULL) == 0 &&
        begin() == 0) {
        process_count(COVERAGE_init_calls);
        if (!atomic_load(&process->page->coverage[COVERAGE_dlsym_lookups]) &&
            !atomic_load(&process->page->coverage[COVERAGE_proc_address_lookups]))
            process_count(COVERAGE_linked_calls);
        atomic_store(&process->state, PROCESS_SERVING);
        service_start();
        recording_serve();
    }
    pthread_mutex_unlock(&process->start_lock);
    process_inside--;
    pthread_setcancelstate(cancel, &cancel);
    errno = error;
}
