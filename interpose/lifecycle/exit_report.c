/* The report at the end of the process: which thread writes it, when it is written again, and the
 * report of a process whose CUDA calls never reached the library. */
#include "interpose/lifecycle/exit_report.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "interpose/process/private_files.h"
#include "interpose/process/mapped_files.h"
#include "interpose/process/process.h"
#include "interpose/resolve/bindings.h"
#include "interpose/resolve/loaded_objects.h"
#include "interpose/resolve/real_driver.h"
#include "interpose/lifecycle/trace_writer.h"
#include "interpose/lifecycle/request.h"
#include "interpose/lifecycle/service_report.h"
#include "interpose/memory/memory.h"
#include "interpose/process/own_thread.h"

#define MOST_SECONDS 30 /* the exit waits so long for the report */

/* The exit report as it was last written. */
static struct {
    int done;          /* it could be written */
    int while_serving; /* before the exit handler: frees are not counted as late, the code is unknown */
    uint64_t frees; /* the late frees that it includes */
} report;

static int last_writing; /* nothing of the program follows, as far as can be known */

enum ending { NOT_ENDING, ENDING_ASKED, ENDING_BEGUN, ENDING_DONE };

/* The exiting thread asks for the exit report. It may have interrupted anything, even malloc, and
 * may run on a signal stack of 8 KiB. So the service thread writes the report, unless it waits for
 * something that the exiting thread holds. */
static struct ending_report {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum ending phase;
    int inside;     /* process_inside of the exiting thread */
    int has_thread; /* the service thread runs */
} ending;

static int ending_goes(enum ending from, enum ending to)
{
    pthread_mutex_lock(&ending.lock);
    int goes = ending.phase == from;
    if (goes)
        ending.phase = to;
    pthread_cond_broadcast(&ending.changed);
    pthread_mutex_unlock(&ending.lock);
    return goes;
}

static struct timespec in_seconds(int seconds)
{
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += seconds;
    return limit;
}

static int is_stale(void)
{
    return !report.done || report.while_serving || memory_late_frees() != report.frees;
}

/* Lets the page go, since the report says all that it says. The page stays mapped: threads that outlive
 * exit may still count in it. */
static void finish(void)
{
    atomic_store(&process.page->state, PAGE_REPORTED);
    PAGE_TELL(process.page, state);
    page_remove(process.page);
}

static void report_exit(void)
{
    const struct timespec limit = in_seconds(2);
    /* A report under way may finish. One that hangs (a dead network disk) must not hang the
     * exit. */
    if (service_report_lock_before(&limit))
        return;
    request_check_signal();
    if (trace_writer_end(last_writing) || is_stale()) {
        report.while_serving = process_serving();
        report.frees = memory_late_frees();
        report.done = service_report_write(REPORT_EXIT, 0) == 0;
    }
    if (last_writing && report.done)
        finish();
    service_report_unlock();
}

int exit_report_answer(void)
{
    if (!ending_goes(ENDING_ASKED, ENDING_BEGUN))
        return 0;
    files_apart(); /* no driver call follows in this thread */
    process_inside = ending.inside;
    report_exit();
    process_inside = 0;
    ending_goes(ENDING_BEGUN, ENDING_DONE);
    return 1;
}

/* Waits while the phase is `phase`, until `limit`. Caller holds the lock. */
static void wait_while(enum ending phase, struct timespec limit)
{
    while (ending.phase == phase &&
           pthread_cond_timedwait(&ending.changed, &ending.lock, &limit) != ETIMEDOUT)
        ;
}

/* Returns 0 if the service thread does not begin. If it begins and does not finish (it needs a lock
 * that the exiting thread interrupted, or the disk is dead), the exit goes on and the page
 * stays. */
static int report_by_thread(void)
{
    pthread_mutex_lock(&ending.lock);
    if (ending.phase != ENDING_BEGUN) {
        ending.inside = process_inside;
        ending.phase = ENDING_ASKED;
        request_wake(REQUEST_LOOK);
        wait_while(ENDING_ASKED, in_seconds(2));
        wait_while(ENDING_BEGUN, in_seconds(MOST_SECONDS));
    }
    int begun = ending.phase != ENDING_ASKED;
    if (!begun)
        ending.phase = NOT_ENDING;
    pthread_mutex_unlock(&ending.lock);
    return begun;
}

static void *report_exit_for(void *inside)
{
    own_thread_begins("cachalot-exit");
    files_apart();
    process_inside = *(int *)inside;
    report_exit();
    own_thread_ends();
    return NULL;
}

/* Without the service thread, and not on a small stack. */
static void report_alone(void)
{
    stack_t stack = {0};
    pthread_t thread;
    int inside = process_inside;
    if (getpid() == syscall(SYS_gettid) && sigaltstack(NULL, &stack) == 0 &&
        !(stack.ss_flags & SS_ONSTACK))
        report_exit();
    else if (own_thread_create(&thread, report_exit_for, &inside) == 0)
        pthread_join(thread, NULL);
}

/* Writes the report of a process that was served. */
static void exit_report_write(void)
{
    if (!ending.has_thread || !report_by_thread())
        report_alone();
}

static int in_destructors; /* ours has run, and those of other libraries run after it */

static ssize_t at_the_very_end(void *unused, const char *text, size_t size)
{
    int cancel;
    (void)unused, (void)text;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    if (process_state() == PROCESS_EXITING && getpid() == process.pid) {
        last_writing = !in_destructors;
        if (is_stale() || process.page->trace[0])
            exit_report_write();
        else if (last_writing)
            finish();
    }
    pthread_setcancelstate(cancel, &cancel);
    return (ssize_t)size;
}

/* Destructors of other libraries may run after ours, and what they free is no leak. A destructor
 * that runs before ours may call exit again, and then ours does not run. glibc flushes its streams
 * after all destructors: a stream of our own with one byte in it calls at_the_very_end. The stream
 * is made at the start, since the exit may have interrupted malloc. It is filled when the exit
 * begins, in our destructor and after all destructors, since the program may flush all streams in
 * between. Until then the page stays: a destructor may end the process by _exit. */
static FILE *last_stream;

void exit_report_prepare(void)
{
    ending = (struct ending_report){PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NOT_ENDING,
                                    0, 0};
    memset(&report, 0, sizeof report);
    last_writing = in_destructors = 0;
    if (!last_stream)
        last_stream = fopencookie(NULL, "w", (cookie_io_functions_t){.write = at_the_very_end});
}

void exit_report_has_thread(int has)
{
    ending.has_thread = has;
}

void exit_report_watch(void)
{
    static char buffer[16];
    if (!last_stream)
        return;
    setvbuf(last_stream, buffer, _IOFBF, sizeof buffer);
    fputc_unlocked('.', last_stream);
}

static void after_destructors(int status, void *unused)
{
    (void)status, (void)unused;
    in_destructors = 0;
    exit_report_watch();
}

void exit_report_in_destructor(void)
{
    exit_report_write();
    exit_report_watch();
    /* glibc runs a handler that is added here after all destructors. The list has room for it: that of
     * the running handler. */
    in_destructors = on_exit(after_destructors, NULL) == 0;
}

/* Counts the objects of this link namespace except libcuda. */
static int count_others(struct dl_phdr_info *object, size_t size, void *data)
{
    unsigned long long *others = data;
    (void)size;
    *others += !strstr(object->dlpi_name, "/libcuda.so");
    return 0;
}

/* Counts the objects of all link namespaces. */
static int count_all(struct dl_phdr_info *object, size_t size, void *data)
{
    (void)size;
    *(unsigned long long *)data = object->dlpi_adds - object->dlpi_subs;
    return 1;
}

/* Does the process use a libcuda? One that the program is only linked to needs no report; one in a
 * namespace of its own cannot be asked. If there is neither, no file is opened. */
static int is_used(void)
{
    unsigned long long others = 0, all = 0;
    int count;
    dl_iterate_phdr(count_others, &others);
    dl_iterate_phdr(count_all, &all);
    if (others == all || !mapped_files_hold("/libcuda.so"))
        return 0;
    if (!real_load())
        return 1;
    CUresult answer = real()->cuDeviceGetCount(&count);
    return answer != CUDA_ERROR_NOT_INITIALIZED && answer != CUDA_ERROR_NO_DEVICE;
}

void exit_report_none(void)
{
    const char *problem = NULL;
    if (!is_used())
        return;
    process.pid = getpid();
    config_read(&process.config);
    process.page = page_create(config_page_dir(&process.config), (struct page_shape){0}, &problem);
    process.domain = domain_create(&process.config.options);
    if (!process.page || !process.domain)
        return;
    config_publish(&process.config, process.page, process_warn);
    snprintf(process.page->hook_order, sizeof process.page->hook_order, "%s", objects_hook_order());
    bindings_look();
    if (!process.page->coverage_note[0])
        snprintf(
            process.page->coverage_note, sizeof process.page->coverage_note,
            "libcuda is in use, but it was not initialised through us (dlmopen, a constructor, or "
            "a library that stands in for it)");
    service_report_write(REPORT_EXIT, 0);
    page_close(process.page, 1);
}
