#include "interpose/lifecycle/service.h"

#include <errno.h>
#include <link.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "interpose/context/capture.h"
#include "interpose/process/private_files.h"
#include "interpose/process/mapped_files.h"
#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"
#include "interpose/lifecycle/service_internal.h"
#include "stats/os/proc.h"
#include "stats/output/report_file.h"

#define STACK_BYTES (512 * 1024)
#define SELDOM 8           /* seconds; two looks in a row */
#define REQUEST_SIGNAL 256 /* asked for by the signal, not by `cachalot dump` */

struct rows {
    struct snapshot_block *row;
    size_t count, room;
};

static void count_row(void *context, const struct snapshot_block *block)
{
    (void)block;
    ((struct rows *)context)->count++;
}

static void take_row(void *context, const struct snapshot_block *block)
{
    struct rows *rows = context;
    if (rows->count < rows->room)
        rows->row[rows->count++] = *block;
}

/* The blocks as they are now, in memory of our own; row is NULL if there was none. */
static struct rows list_blocks(void)
{
    struct rows rows = {0};
    if (process_inside)
        return rows;
    domain_walk(process->domain, count_row, &rows);
    rows.room = rows.count + 1024; /* some more may come between the two walks */
    void *memory = mmap(NULL, rows.room * sizeof *rows.row, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    rows.count = 0;
    rows.row = memory == MAP_FAILED ? NULL : memory;
    if (rows.row)
        domain_walk(process->domain, take_row, &rows);
    return rows;
}

int service_write_report(enum report_kind kind, int with_segments)
{
    struct page *page = process->page;
    struct rows rows = list_blocks();
    const struct events *events = page_events(page); /* shown on the map of segments */
    int list = with_segments || (events && events->shown);
    const struct snapshot snapshot = {page, rows.row, rows.count, list};
    const struct report_options options = {
        .kind = kind,
        .exit_reason = kind == REPORT_EXIT ? "exit" : "running",
        .exit_code = kind == REPORT_EXIT ? atomic_load(&page->exit_code) : -1,
    };
    char path[sizeof page->answer];
    atomic_fetch_add(&page->sequence, 1);
    int code = report_write(&snapshot, &options, path, sizeof path);
    if (code)
        snprintf(page->answer, sizeof page->answer, "error: cannot write %.900s: %s", page->output,
                 strerror(-code));
    else
        snprintf(page->answer, sizeof page->answer, "%s", path);
    if (code)
        process_warn("the report could not be written: %s", strerror(-code));
    if (rows.row)
        munmap(rows.row, rows.room * sizeof *rows.row);
    return code;
}

static void on_signal(int signal);

/* Did the program take the signal from us? Then it wins, and reports say so, once. */
void service_check_signal(void)
{
    static int said;
    struct sigaction now;
    uint32_t number = atomic_load(&process->page->signal_installed);
    if (said || !number || sigaction((int)number, NULL, &now) || now.sa_handler == on_signal)
        return;
    process_warn("the program took signal %u for itself later", number);
    said = 1;
}

static void write_reports(void *requests)
{
    uint32_t request = *(const uint32_t *)requests;
    if (request & REQUEST_SIGNAL)
        service_write_report(REPORT_SIGNAL, 0);
    if (request & (REQUEST_REPORT | REQUEST_BLOCKS))
        service_write_report(REPORT_REQUEST, (request & REQUEST_BLOCKS) != 0);
}

static void carry_out(uint32_t request)
{
    pthread_mutex_lock(&process->report_lock);
    if (process_serving()) {
        service_check_signal();
        domain_poll(process->domain); /* what has become reusable is shown so */
        if (request & REQUEST_EMPTY_CACHE) {
            uint64_t bytes = domain_empty_cache(process->domain, 0);
            snprintf(process->page->answer, sizeof process->page->answer, "%llu bytes given back",
                     (unsigned long long)bytes);
        }
        if (request & (REQUEST_SIGNAL | REQUEST_REPORT | REQUEST_BLOCKS))
            files_run(write_reports, &request);
    }
    pthread_mutex_unlock(&process->report_lock);
}

static long futex(_Atomic uint32_t *word, int operation, uint32_t value,
                  const struct timespec *limit)
{
    return syscall(SYS_futex, word, operation, value, limit, NULL, 0);
}

void service_wake(uint32_t request)
{
    atomic_fetch_or(&process->page->request, request);
    futex(&process->page->request, FUTEX_WAKE, 1, NULL);
}

/* Other processes may need what lies idle here. Not while a stream is captured: another time. */
static void relieve_others(void)
{
    pthread_mutex_lock(&process->report_lock);
    if (process_serving() && !capture_active())
        domain_relieve(process->domain);
    pthread_mutex_unlock(&process->report_lock);
}

/* A thread begins as its maker is: one that traps what is inexact, say, would end in a division. */
static void plain_arithmetic(void)
{
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(0x1f80);
#else
    __builtin_aarch64_set_fpcr(0);
#endif
}

void service_thread_begins(const char *name)
{
    prctl(PR_SET_NAME, name);
    plain_arithmetic();
    atomic_fetch_add(&process->own_threads, 1);
}

void service_thread_ends(void)
{
    atomic_fetch_sub(&process->own_threads, 1);
}

/* What has ended has no memory. Where the call is forbidden, a look now and then must do. */
static int main_thread_lives(void)
{
    static unsigned looks;
    char here, there = 0;
    struct iovec to = {&here, 1}, from = {&there, 1};
    return process_vm_readv(process->pid, &to, 1, &from, 1, 0) == 1 ||
           (errno != ESRCH && looks++ % SELDOM > 1);
}

static void look_for_the_last(void *times)
{
    int *seen = times;
    struct proc_status now;
    uint64_t own = atomic_load(&process->own_threads);
    *seen = proc_status((uint64_t)process->pid, &now) == 0 && now.state == 'Z' &&
                    now.start_ticks == process->page->start_ticks && now.threads == own + 1 &&
                    own == (uint64_t)atomic_load(&process->own_threads)
                ? *seen + 1
                : 0;
}

/* A process whose main thread has called pthread_exit ends, with code 0, when its last thread does.
 * (On a GPU it does not: the driver's threads stay.) Seen twice, as threads come and go. */
static void end_if_last(void)
{
    static int seen;
    if (main_thread_lives())
        seen = 0;
    else
        files_run(look_for_the_last, &seen);
    if (seen < 2)
        return;
    ending_has_thread(0); /* this one is not to wait for itself */
    exit(0);
}

static void *serve(void *unused)
{
    struct page *page = process->page;
    service_thread_begins("cachalot");
    for (;;) {
        uint32_t request = atomic_exchange(&page->request, 0) & ~(uint32_t)REQUEST_LOOK;
        ending_answer();
        if (!request) {
            static const struct timespec second = {.tv_sec = 1};
            if (futex(&page->request, FUTEX_WAIT, 0, &second) && errno == ETIMEDOUT) {
                relieve_others();
                end_if_last();
            }
            continue;
        }
        carry_out(request);
        atomic_fetch_add(&page->answered, 1);
        futex(&page->answered, FUTEX_WAKE, INT32_MAX, NULL);
    }
    return unused;
}

static struct sigaction replaced; /* what was there before ours */

/* Async-signal-safe: an atomic and a system call. In a forked child `process` is wiped, and nothing
 * happens. */
static void on_signal(int signal)
{
    int error = errno;
    if (process_state() != PROCESS_IDLE) {
        service_wake(REQUEST_SIGNAL);
    } else if (replaced.sa_handler == SIG_DFL) { /* a forked child: as natively */
        sigaction(signal, &replaced, NULL);
        raise(signal);
    }
    errno = error;
}

static void take_signal(void)
{
    struct sigaction old, mine = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
    int number = process->config.signal;
    if (!number || sigaction(number, NULL, &old))
        return;
    if (old.sa_handler == on_signal) /* a child's, made without fork */
        old = replaced;
    /* Ignored: by `cachalot run`, else the program wants it so, and what it starts inherits that. */
    if ((old.sa_flags & SA_SIGINFO) ||
        (old.sa_handler != SIG_DFL && (old.sa_handler != SIG_IGN || !process->page->session[0]))) {
        process_warn("signal %d belongs to the program: ask with `cachalot dump %d`", number,
                     process->pid);
        return;
    }
    replaced = old;
    if (sigaction(number, &mine, NULL) == 0)
        atomic_store(&process->page->signal_installed, (uint32_t)number);
}

int service_create_thread(pthread_t *thread, void *(*function)(void *), void *argument)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int code = pthread_attr_init(&attributes);
    if (code)
        return code;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    code = pthread_create(thread, &attributes, function, argument);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

int service_thread(void *(*function)(void *))
{
    pthread_t thread;
    int code = service_create_thread(&thread, function, NULL);
    return code ? code : pthread_detach(thread);
}

void service_start(void)
{
    ending_prepare();
    int code = service_thread(serve);
    ending_has_thread(code == 0);
    if (code)
        process_warn("no service thread (%s): no reports on request", strerror(code));
    else
        take_signal();
}
