#include "sim_time.h"

#include "config.h"
#include "engine.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

#define SHORT_NAP_NS 50000
#define LONGEST_NAP_NS 1000000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static uint64_t by_hand = 1;
static int thread_started, forked;
static struct sim_item *offered;

void engine_lock(void)
{
    pthread_mutex_lock(&lock);
}

void engine_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

int engine_forked(void)
{
    return forked;
}

/* CUDA does not survive fork: the child is told so by every call. */
static void child_after_fork(void)
{
    forked = 1;
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

void engine_prepare(void)
{
    pthread_atfork(NULL, NULL, child_after_fork);
}

int time_is_manual(void)
{
    return config()->manual_clock;
}

static uint64_t real_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t time_now(void)
{
    return time_is_manual() ? by_hand : real_now();
}

void time_jump_to(uint64_t ns)
{
    if (by_hand < ns)
        by_hand = ns;
}

void time_nap(uint64_t ns)
{
    if (ns < SHORT_NAP_NS) {
        sched_yield();
        return;
    }
    if (ns > LONGEST_NAP_NS)
        ns = LONGEST_NAP_NS;
    struct timespec nap = {0, (long)ns};
    nanosleep(&nap, NULL);
}

/* The item is not carried out before its host function has returned, so it cannot go away here. */
static void host_run_offered(void)
{
    struct sim_item *item = offered;
    offered = item->next_offered;
    CUhostFn function = item->work.host;
    void *data = item->work.host_data;
    engine_unlock();
    function(data);
    engine_lock();
    item->host_state = HOST_DONE;
}

static void *host_thread(void *unused)
{
    (void)unused;
    engine_lock();
    for (;;) {
        engine_run();
        if (offered) {
            host_run_offered();
            continue;
        }
        if (time_is_manual() || !engine_active()) {
            pthread_cond_wait(&wake, &lock);
            continue;
        }
        uint64_t end = engine_next_end(), now = time_now();
        engine_unlock();
        time_nap(end == UINT64_MAX ? 100000 : end > now ? end - now : 0);
        engine_lock();
    }
    return NULL;
}

void host_wake(void)
{
    if (!thread_started) {
        thread_started = 1;
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        pthread_t thread;
        if (pthread_create(&thread, NULL, host_thread, NULL) == 0)
            pthread_detach(thread);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    pthread_cond_signal(&wake);
}

void host_offer(struct sim_item *item)
{
    item->host_state = HOST_OFFERED;
    item->next_offered = NULL;
    struct sim_item **last = &offered;
    while (*last)
        last = &(*last)->next_offered;
    *last = item;
    host_wake();
}
