#include "interpose/lifecycle/start.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "interpose/context/capture.h"
#include "interpose/context/context.h"
#include "interpose/lifecycle/exit_report.h"
#include "interpose/lifecycle/own_caches.h"
#include "interpose/lifecycle/request.h"
#include "interpose/lifecycle/service.h"
#include "interpose/lifecycle/trace_writer.h"
#include "interpose/memory/bounds.h"
#include "interpose/memory/slack.h"
#include "interpose/memory/memory.h"
#include "interpose/memory/pinned.h"
#include "interpose/memory/smaller_device.h"
#include "interpose/process/main_thread.h"
#include "interpose/process/private_files.h"
#include "interpose/process/process.h"
#include "interpose/process/thread_exit.h"
#include "interpose/resolve/bindings.h"
#include "interpose/resolve/loaded_objects.h"
#include "interpose/resolve/real_driver.h"
#include "interpose/sleep/sleep.h"
#include "interpose/stream/submit.h"

#define OLD_PAGE_SECONDS (7 * 24 * 3600)

static struct WIPED starting {
    pthread_mutex_t lock;
} starting;
static const struct wiped wiped WIPED_ENTRY = {&starting, sizeof starting};

static void (*const at_thread_exit[])(void) = {capture_thread_ends, memory_thread_ends,
                                               submit_thread_ends, service_thread_ends, NULL};

/* Runs also in a process that is not served: there loaded_objects.c passes each call on. */
__attribute__((constructor)) static void loaded(void)
{
    main_thread_note();
    objects_prepare();
    real_may_open();
    process_load();
    bindings_begin(request_expect_signal);
}

static void on_exit_begin(int status, void *unused)
{
    (void)unused;
    if (!process_serving() || getpid() != process.pid)
        return;
    /* A signal handler that calls exit has interrupted this thread inside the allocator. The thread
     * never leaves it, and others may wait for that. */
    if (domain_thread_is_inside(process.domain))
        process_inside++;
    if (!process_inside) { /* the last moment at which the library may call the driver */
        slack_check_all();
        domain_poll(process.domain);
    }
    atomic_store(&process.page->exit_code, status & 0xff);
    atomic_store(&process.page->state, PAGE_EXITING);
    PAGE_TELL(process.page, exit_code);
    PAGE_TELL(process.page, state);
    atomic_store(&process.state, PROCESS_EXITING);
    exit_report_watch();
}

__attribute__((destructor)) static void unload(void)
{
    if (!process_enabled())
        return;
    pid_t pid = getpid(), by = process_first_reached();
    int cancel;
    /* A thread that is cancelled in here would end the exit. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    if (process_state() != PROCESS_IDLE && pid == process.pid) {
        exit_report_in_destructor();
    } else if (process_state() == PROCESS_IDLE && (!by || by == pid)) {
        exit_report_none();
    }
    pthread_setcancelstate(cancel, &cancel);
}

struct making {
    unsigned devices;
    const char *problem;
};

static void make_page(void *what)
{
    struct making *making = what;
    process.page = trace_writer_page(making->devices, &making->problem);
    if (process.page)
        page_remove_old(config_page_dir(&process.config), OLD_PAGE_SECONDS);
}

/* Makes everything that lasts for the process's life. Caller holds the lock. Returns 0 if the
 * process can be served. */
static int begin(void)
{
    struct making making = {0};
    int count = 0;
    if (real()->cuDeviceGetCount(&count) != CUDA_SUCCESS || count < 1)
        return -1;
    static int lives; /* a child made without fork may have its parent's pid */
    process.pid = getpid();
    process.life = ++lives;
    context_start();
    config_read(&process.config);
    const struct options *options = &process.config.options;
    process.watched = *options->fail_alloc.text || options->fill.kind != FILL_NONE ||
                      options->bounds != BOUNDS_OFF || options->slack;
    own_caches_note();
    making.devices = (unsigned)count;
    files_run(make_page, &making);
    if (!process.page)
        return -1;
    if (making.problem)
        process_warn("the live page: %s", making.problem);
    config_publish(&process.config, process.page, process_warn);
    snprintf(process.page->hook_order, sizeof process.page->hook_order, "%s", objects_hook_order());
    bindings_look(); /* says in the page what an earlier look has found */
    smaller_device_begin();
    bounds_begin();
    process.domain = domain_create(&process.config.options);
    if (!process.domain) {
        page_close(process.page, 1);
        process.page = NULL;
        return -1;
    }
    pinned_begin();
    thread_exit_calls(at_thread_exit);
    trace_writer_start();
    submit_start();
    sleep_start();
    for (enum coverage_kind kind = 0; kind < COVERAGE_KINDS; kind++)
        atomic_fetch_add(&process.page->coverage[kind], atomic_exchange(&process.early[kind], 0));
    submit_look_around();
    atomic_store(&process.page->state, PAGE_RUNNING);
    page_tell_all(process.page);
    return 0;
}

void start_serving(void)
{
    /* process_inside: a tool that the driver calls back within `begin` may call cuInit too. */
    if (!process_enabled() || process_state() != PROCESS_IDLE || process_inside)
        return;
    int error = errno, cancel;
    /* A thread that is cancelled in here would keep the lock. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    process_inside++;
    wiped_all_from_now(); /* including the lock */
    pthread_mutex_lock(&starting.lock);
    /* Without the exit handler nothing would tell us when to stop: then nothing begins. */
    if (process_state() == PROCESS_IDLE && !process.page && on_exit(on_exit_begin, NULL) == 0 &&
        begin() == 0) {
        process_count(COVERAGE_init_calls);
        if (!atomic_load(&process.page->coverage[COVERAGE_dlsym_lookups]) &&
            !atomic_load(&process.page->coverage[COVERAGE_proc_address_lookups]))
            process_count(COVERAGE_linked_calls);
        atomic_store(&process.state, PROCESS_SERVING);
        service_start();
        trace_writer_serve();
    }
    pthread_mutex_unlock(&starting.lock);
    process_inside--;
    pthread_setcancelstate(cancel, &cancel);
    errno = error;
}
