#include "interpose/process/own_thread.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>

#include "interpose/process/wiped.h"

#define STACK_BYTES (512 * 1024)

static struct WIPED own_threads {
    _Atomic int count;
} own_threads;
static const struct wiped wiped WIPED_ENTRY = {&own_threads, sizeof own_threads};

int own_thread_create(pthread_t *thread, void *(*function)(void *), void *argument)
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

int own_thread_detached(void *(*function)(void *))
{
    pthread_t thread;
    int code = own_thread_create(&thread, function, NULL);
    return code ? code : pthread_detach(thread);
}

/* A thread inherits the floating-point control of its creator. With a program's trap for inexact
 * results, a division here would end the process. */
static void plain_arithmetic(void)
{
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(0x1f80);
#else
    __builtin_aarch64_set_fpcr(0);
#endif
}

void own_thread_begins(const char *name)
{
    prctl(PR_SET_NAME, name);
    plain_arithmetic();
    atomic_fetch_add(&own_threads.count, 1);
}

void own_thread_ends(void)
{
    atomic_fetch_sub(&own_threads.count, 1);
}

int own_thread_count(void)
{
    return atomic_load(&own_threads.count);
}
