#include "interpose/lifecycle/service.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "interpose/context/capture.h"
#include "interpose/context/neighbours.h"
#include "interpose/lifecycle/exit_report.h"
#include "interpose/lifecycle/request.h"
#include "interpose/memory/slack.h"
#include "interpose/lifecycle/sampler.h"
#include "interpose/lifecycle/service_report.h"
#include "interpose/memory/pinned.h"
#include "interpose/process/main_thread.h"
#include "interpose/process/own_thread.h"
#include "interpose/process/private_files.h"
#include "interpose/process/process.h"
#include "interpose/process/thread_exit.h"
#include "interpose/sleep/sleep.h"
#include "stats/os/clock.h"
#include "stats/os/proc.h"
#include "stats/page/need.h"

#define SELDOM 8 /* seconds between two pairs of looks */
#define SECOND UINT64_C(1000000000)
#define QUIET (SECOND / 2) /* a rest begins when nothing has changed for so long */

static struct WIPED service {
    uint64_t due;                /* when the next second begins */
    uint64_t quiet;              /* when a rest may begin */
    uint32_t seconds;            /* since idle memory was last looked for */
    int has_changed;             /* a number has, since the driver was last asked */
    _Atomic int main_is_watched; /* the main thread will say when it ends */
} service;
static const struct wiped wiped WIPED_ENTRY = {&service, sizeof service};

static void write_reports(void *requests)
{
    uint32_t request = *(const uint32_t *)requests;
    if (request & REQUEST_SIGNAL)
        service_report_write(REPORT_SIGNAL, 0);
    if (request & (REQUEST_REPORT | REQUEST_BLOCKS))
        service_report_write(REPORT_REQUEST, (request & REQUEST_BLOCKS) != 0);
}

/* What may be asked for now. The page's user asks with the rights that he has over this process: none,
 * after it has become another user's. */
static uint32_t permitted(uint32_t request)
{
    if (process.page->uid == 0 || process.page->uid == geteuid())
        return request;
    snprintf(process.page->answer, sizeof process.page->answer,
             "error: the program has changed its user");
    return request & REQUEST_SIGNAL;
}

/* A process that is to sleep or to wake answers for that alone. */
static void sleep_or_wake(uint32_t request)
{
    struct sleep_answer answer;
    unsigned flags = (request & REQUEST_PARTIAL ? CACHALOT_SLEEP_PARTIAL : 0U) |
                     (request & REQUEST_HOLD ? CACHALOT_SLEEP_HOLD : 0U);
    int failed = request & REQUEST_SLEEP ? sleep_begin(flags, &answer) : sleep_end(&answer);
    snprintf(process.page->answer, sizeof process.page->answer, "%s%s", failed ? "error: " : "",
             answer.text);
}

/* Idle memory is given back, as other processes or the command ask. A process that sleeps has none
 * on the device. */
static void give(uint32_t request)
{
    int sleeps = sleep_is_on();
    if (request & REQUEST_GIVE && !sleeps)
        neighbours_give();
    for (int i = 0; request & REQUEST_GIVE && sleeps && i < 2; i++)
        need_gives(process.page); /* begins and ends: there is nothing to give */
    if (request & REQUEST_EMPTY_CACHE) {
        uint64_t bytes = sleeps ? 0 : domain_empty_cache(process.domain, 0);
        if (process.pinned)
            bytes += domain_empty_cache(process.pinned, 0);
        snprintf(process.page->answer, sizeof process.page->answer, "%llu bytes given back",
                 (unsigned long long)bytes);
    }
}

static void carry_out(uint32_t request)
{
    service_report_lock();
    request = permitted(request);
    if (process_serving()) {
        request_check_signal();
        domain_poll(process.domain); /* blocks that have become reusable are reported so */
        give(request);
        if (request & (REQUEST_SLEEP | REQUEST_WAKE))
            sleep_or_wake(request);
        if (request & (REQUEST_SIGNAL | REQUEST_REPORT | REQUEST_BLOCKS)) {
            slack_check_all();
            files_run(write_reports, &request);
        }
    }
    service_report_unlock();
}

/* Gives idle memory back at the pace of the option idle_return_s, and pinned memory if the host is short. Not while a stream is being captured:
 * then the next second tries again. The caller has the lock of reports. */
static void return_idle(void)
{
    uint32_t every = process.config.options.idle_return;
    if (process_serving() && !capture_active())
        pinned_look_at_host();
    if (every && ++service.seconds >= every && process_serving() && !capture_active() &&
        !sleep_is_on()) {
        service.seconds = 0;
        domain_return_idle(process.domain);
        if (process.pinned)
            domain_return_idle(process.pinned);
    }
}

/* Where the main thread cannot be looked at, /proc is read now and then. */
static int may_be_last(void)
{
    static unsigned looks;
    int lives = main_thread_lives();
    return lives < 0 ? looks++ % SELDOM <= 1 : !lives;
}

static void look_for_the_last(void *times)
{
    int *seen = times;
    struct proc_status now;
    uint64_t own = (uint64_t)own_thread_count();
    *seen = proc_status((uint64_t)process.pid, &now) == 0 && now.state == 'Z' &&
                    now.start_ticks == process.page->start_ticks && now.threads == own + 1 &&
                    own == (uint64_t)own_thread_count()
                ? *seen + 1
                : 0;
}

/* Ends the process, with code 0, when the main thread has called pthread_exit and no other thread
 * of the program is left. (On a real GPU the driver's own threads stay, and so does the process.)
 * Requires two equal looks, since threads come and go. */
static void end_if_last(void)
{
    static int seen;
    if (may_be_last())
        files_run(look_for_the_last, &seen);
    else
        seen = 0;
    if (seen < 2)
        return;
    exit_report_has_thread(0); /* the service thread must not wait for itself */
    exit(0);
}

/* Is there nothing that has to be looked at each second, as long as nothing is requested or freed? */
static int may_sleep(void)
{
    return !service.has_changed && atomic_load(&service.main_is_watched) &&
           (!process.config.options.idle_return ||
            (domain_has_returned_idle(process.domain) &&
             (!process.pinned || domain_has_returned_idle(process.pinned))));
}

static void wake(void)
{
    request_wake(REQUEST_LOOK);
}

static void rouse(void)
{
    domain_rouse(process.domain);
    if (process.pinned)
        domain_rouse(process.pinned);
}

/* Returns 0 if something was requested or freed since the last call. */
static int rest(void)
{
    return domain_rest(process.domain, wake) &&
           (!process.pinned || domain_rest(process.pinned, wake));
}

/* Looks at the numbers: often while they change, and then until something is requested or freed
 * again. Returns how long to wait for the next turn. */
static uint64_t take_turn(void)
{
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    int is_due = now >= service.due;
    rouse();
    if (is_due) {
        return_idle();
        service.due = now + SECOND;
    }
    if (sampler_look()) {
        service.has_changed = 1;
        service.quiet = now + QUIET;
    }
    if (is_due && service.has_changed) {
        service.has_changed = 0;
        sampler_ask_driver();
        sampler_look();
    }
    int sleeps = may_sleep();
    if (now < service.quiet || !rest())
        return sampler_interval_ns();
    service.has_changed |= sampler_look();
    return sleeps ? UINT64_MAX : service.due - now;
}

/* Without service there are requests alone, and the thread sleeps. */
static uint64_t turn(void)
{
    uint64_t wait = UINT64_MAX, due = service.due;
    service_report_lock();
    if (process_serving())
        wait = take_turn();
    service_report_unlock();
    if (service.due != due)
        end_if_last();
    return wait;
}

static void *serve(void *unused)
{
    own_thread_begins("cachalot");
    service.due = clock_ns(CLOCK_MONOTONIC) + SECOND;
    for (int ended = 0;;) {
        uint32_t request = request_take() & ~(uint32_t)REQUEST_LOOK;
        ended |= exit_report_answer(); /* and from there on no driver call is made here */
        if (request) {
            if (!ended)
                carry_out(request);
            request_answer();
        }
        request_wait(ended ? UINT64_MAX : turn());
    }
    return unused;
}

static int is_main_thread(void)
{
    return getpid() == syscall(SYS_gettid);
}

void service_thread_ends(void)
{
    if (!process_serving() || !is_main_thread())
        return;
    atomic_store(&service.main_is_watched, 0);
    wake();
}

void service_start(void)
{
    atomic_store(&service.main_is_watched, is_main_thread() && thread_exit_watch());
    exit_report_prepare();
    int code = own_thread_detached(serve);
    exit_report_has_thread(code == 0);
    if (code)
        process_warn("no service thread (%s): no reports on request", strerror(code));
    else
        request_take_signal();
}
