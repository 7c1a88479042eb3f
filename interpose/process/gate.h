/* The gate. While the process sleeps (interpose/sleep), no call of the program that needs device
 * memory goes on: it waits here, and one of the waiting threads wakes the process.
 *
 * Submissions look at the gate in their slow path, which all of them take while it is closed
 * (lane_close). All other calls pass it by gate_enter and gate_leave. A thread holds no lock of the
 * library while it waits here. */
#ifndef CACHALOT_INTERPOSE_PROCESS_GATE_H
#define CACHALOT_INTERPOSE_PROCESS_GATE_H

#include <stdatomic.h>
#include <stdint.h>

#include "interpose/process/wiped.h"

/* CLOSING and WAKING: a thread moves memory. */
enum gate_state { GATE_OPEN, GATE_CLOSING, GATE_ASLEEP, GATE_WAKING };

struct WIPED gate {
    _Atomic uint32_t state;  /* futex: enum gate_state */
    _Atomic uint32_t inside; /* threads between gate_enter and gate_leave */
    _Atomic int held;        /* only a command wakes the process */
    void (*_Atomic wake)(void);
    _Atomic(const char *) forbidden; /* why this process never sleeps; NULL: it may */
};
extern struct gate gate __attribute__((visibility("hidden")));

/* How deep the calling thread is in calls that the gate lets through. */
extern _Thread_local unsigned gate_depth;

/* Does the gate hold the calling thread up? */
static inline int gate_is_closed(void)
{
    return __builtin_expect(atomic_load(&gate.state) != GATE_OPEN, 0) && !gate_depth;
}

/* Waits a while for the gate to open, or wakes the process. */
void gate_await(void);

/* Around a call that needs mapped memory to be where it is. They nest. */
void gate_enter(void);
void gate_leave(void);

/* PASS_GATE: the rest of the function is such a call. */
static inline void gate_left(const int *unused)
{
    (void)unused;
    gate_leave();
}
#define PASS_GATE                                                                                  \
    gate_enter();                                                                                  \
    __attribute__((cleanup(gate_left), unused)) const int in_gate = 0

/* From now on the process is never put to sleep; the first reason counts. Static text. */
void gate_forbid(const char *reason);

/* For interpose/sleep. change: from one state to another; returns 0 if the state is a third one. The
 * thread that moves memory passes the gate from `own 1` to `own 0`. */
int gate_change(enum gate_state from, enum gate_state to);
void gate_own(int own);

#endif
