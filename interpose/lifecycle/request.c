#include "interpose/lifecycle/request.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "interpose/process/process.h"
#include "interpose/resolve/bindings.h"

#define NS_PER_S UINT64_C(1000000000)

static long futex(_Atomic uint32_t *word, int operation, uint32_t value,
                  const struct timespec *limit)
{
    return syscall(SYS_futex, word, operation, value, limit, NULL, 0);
}

void request_wake(uint32_t request)
{
    atomic_fetch_or(&process.page->request, request);
    futex(&process.page->request, FUTEX_WAKE, 1, NULL);
}

uint32_t request_take(void)
{
    return atomic_exchange(&process.page->request, 0);
}

void request_wait(uint64_t most_ns)
{
    const struct timespec limit = {.tv_sec = (time_t)(most_ns / NS_PER_S),
                                   .tv_nsec = (long)(most_ns % NS_PER_S)};
    futex(&process.page->request, FUTEX_WAIT, 0, most_ns == UINT64_MAX ? NULL : &limit);
}

void request_answer(void)
{
    atomic_fetch_add(&process.page->answered, 1);
    futex(&process.page->answered, FUTEX_WAKE, INT32_MAX, NULL);
}

static struct sigaction replaced; /* the action before ours */
static _Atomic int expecting;     /* CUDA may be in the process, and has not begun */
static _Atomic pid_t asked;       /* the process that got a signal meanwhile */

/* Async-signal-safe: an atomic and a system call. The forked child of a served process is not
 * served: there the signal does what it would do natively. */
static void on_signal(int signal)
{
    int error = errno;
    if (process_state() != PROCESS_IDLE) {
        request_wake(REQUEST_SIGNAL);
    } else if (atomic_load(&expecting) && bindings_find_cuda()) {
        atomic_store(&asked, getpid());
    } else if (replaced.sa_handler == SIG_DFL) { /* the default action, as natively */
        sigaction(signal, &replaced, NULL);
        raise(signal);
    }
    errno = error;
}

static const struct sigaction mine = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};

void request_expect_signal(void)
{
    struct sigaction old;
    int number = config_signal();
    if (process_state() != PROCESS_IDLE || atomic_load(&expecting) || !number ||
        sigaction(number, NULL, &old) || (old.sa_flags & SA_SIGINFO) || old.sa_handler != SIG_DFL)
        return;
    replaced = old;
    atomic_store(&expecting, 1);
    sigaction(number, &mine, NULL);
}

void request_take_signal(void)
{
    struct sigaction old;
    int number = process.config.signal;
    if (!number || sigaction(number, NULL, &old))
        return;
    if (old.sa_handler == on_signal) /* inherited: the child was made without fork */
        old = replaced;
    /* `cachalot run` ignores the signal for the program. Otherwise the program ignores it itself,
     * and its children inherit that: then it stays ignored. */
    if ((old.sa_flags & SA_SIGINFO) ||
        (old.sa_handler != SIG_DFL && (old.sa_handler != SIG_IGN || !process.page->session[0]))) {
        process_warn("signal %d belongs to the program: ask with `cachalot dump %d`", number,
                     process.pid);
        return;
    }
    replaced = old;
    if (sigaction(number, &mine, NULL) == 0)
        atomic_store(&process.page->signal_installed, (uint32_t)number);
    PAGE_TELL(process.page, signal_installed);
    atomic_store(&expecting, 0);
    if (atomic_exchange(&asked, 0) == process.pid)
        request_wake(REQUEST_SIGNAL);
}

void request_check_signal(void)
{
    static int said;
    struct sigaction now;
    uint32_t number = atomic_load(&process.page->signal_installed);
    if (said || !number || sigaction((int)number, NULL, &now) || now.sa_handler == on_signal)
        return;
    process_warn("the program took signal %u for itself later", number);
    said = 1;
}
