#include "interpose/process/gate.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "interpose/process/process.h"

struct gate gate;
static const struct wiped wiped WIPED_ENTRY = {&gate, sizeof gate};
_Thread_local unsigned gate_depth;

/* The wait has an end, so that a thread notices a wake that has failed. */
void gate_await(void)
{
    static const struct timespec nap = {.tv_nsec = 100000000};
    int error = errno;
    uint32_t state = atomic_load(&gate.state);
    int may = !atomic_load(&gate.held) || !process_serving(); /* an exit waits for no command */
    if (state == GATE_ASLEEP && may)
        atomic_load (&gate.wake)();
    else if (state != GATE_OPEN)
        syscall(SYS_futex, &gate.state, FUTEX_WAIT_PRIVATE, state, &nap, NULL, 0);
    errno = error;
}

void gate_enter(void)
{
    for (; !gate_depth; gate_await()) {
        atomic_fetch_add(&gate.inside, 1);
        if (atomic_load(&gate.state) == GATE_OPEN)
            break;
        atomic_fetch_sub(&gate.inside, 1);
    }
    gate_depth++;
}

void gate_leave(void)
{
    if (!--gate_depth)
        atomic_fetch_sub(&gate.inside, 1);
}

void gate_forbid(const char *reason)
{
    const char *none = NULL;
    atomic_compare_exchange_strong(&gate.forbidden, &none, reason);
}

int gate_change(enum gate_state from, enum gate_state to)
{
    uint32_t expected = from;
    if (!atomic_compare_exchange_strong(&gate.state, &expected, to))
        return 0;
    syscall(SYS_futex, &gate.state, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
    return 1;
}

void gate_own(int own)
{
    gate_depth += own ? 1U : -1U;
}
