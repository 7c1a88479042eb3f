#include "interpose/sleep/sleep.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "interpose/context/capture.h"
#include "interpose/context/context.h"
#include "interpose/context/mappings.h"
#include "interpose/context/neighbours.h"
#include "interpose/process/gate.h"
#include "interpose/process/process.h"
#include "interpose/resolve/unseen.h"
#include "interpose/sleep/live.h"
#include "interpose/sleep/move.h"
#include "interpose/sleep/registered.h"
#include "interpose/sleep/settle.h"
#include "interpose/sleep/store.h"
#include "stats/os/clock.h"
#include "stats/os/pause.h"

#define SECOND UINT64_C(1000000000)
#define PATIENCE_NS (5 * SECOND) /* for calls under way, and for work on the device */
#define BETWEEN_TRIES_NS 20000000
#define TRIES 100 /* of a wake by command, and to take a failed sleep back */

/* The thread that has moved the gate from OPEN or ASLEEP owns this until it moves the gate again. */
static struct WIPED sleeping {
    struct live live;
    char *store;
    uint64_t stored; /* bytes of the store */
    int has_left;    /* some memory was given back: what lies in the store counts */
} sleeping;
static const struct wiped wiped WIPED_ENTRY = {&sleeping, sizeof sleeping};

static uint64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

__attribute__((format(printf, 2, 3))) static void say(struct sleep_answer *answer,
                                                      const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(answer->text, sizeof answer->text, format, arguments);
    va_end(arguments);
}

static void note(enum sleep_number number, uint64_t value)
{
    stat_set(&process.page->sleep[number], value);
}

static void count(enum sleep_number number, uint64_t value)
{
    note(number, stat_get(&process.page->sleep[number]) + value);
}

/* Waits until no call that was let through is under way. */
static const char *drain(uint64_t until)
{
    if (lane_close(process.domain))
        return "this needs free_mode:async";
    for (int empty, looks = 0;; looks++) {
        empty = atomic_load(&gate.inside) ? 0 : lane_is_empty(process.domain);
        if (empty < 0)
            return "not every submission can be seen in flight";
        if (empty && !atomic_load(&gate.inside))
            return NULL;
        if (now_ns() >= until)
            return "a call into the driver does not end";
        pause_look(looks);
    }
}

/* Why the process must stay awake; NULL: nothing speaks against its sleep. The gate is closed. */
static const char *reason_against(uint64_t until)
{
    const char *why = drain(until);
    if (!why)
        why = atomic_load(&gate.forbidden);
    if (!why)
        why = registered_reason();
    if (!why && (unseen_way() || stat_get(&process.page->coverage[COVERAGE_unseen_work])))
        why = "work may reach the device past the library";
    if (!why && capture_active())
        why = "a capture is active";
    if (!why && !process_serving())
        why = "the program is ending";
    return why ? why : settle_all(until);
}

/* Has the driver map all that is not mapped, with memory where there is none. It goes on where an
 * earlier try has failed. */
static int map_again(void)
{
    int code = 0;
    for (struct backing *b = mapping_first_backing(); !code && b; b = b->next)
        if (b->is_empty && !(code = backing_fill(b)))
            backing_note_away(b, -1);
    for (struct mapping *m = mapping_at_least(0); !code && m;
         m = mapping_at_least(m->node.minor + 1)) {
        if (!m->is_down)
            continue;
        code = driver_chunk_map(m->backing->context, m->node.minor, m->backing->bytes,
                                m->backing->handle);
        if (!code)
            m->is_down = 0, m->is_shut = 1;
    }
    return code;
}

/* Gives access again, to as many neighbouring mappings as possible at once. */
static int allow_again(void)
{
    int code = 0;
    for (struct mapping *m = mapping_at_least(0), *next; !code && m; m = next) {
        uint64_t begin = m->node.minor, end = begin;
        struct context *context = m->backing->context;
        int shut = m->is_shut && !m->is_closed;
        for (next = m; next && next->node.minor == end && next->backing->context == context &&
                       (next->is_shut && !next->is_closed) == shut;
             next = mapping_at_least(end))
            end += next->backing->bytes;
        if (shut)
            code = driver_chunk_allow(context, begin, end - begin);
        for (struct mapping *done = m; shut && !code && done && done->node.minor < end;
             done = mapping_at_least(done->node.minor + 1))
            done->is_shut = 0;
    }
    return code;
}

/* Makes all memory as it was. Returns 0 or the driver's error: then it may be tried again. */
static int restore(void)
{
    int code = map_again();
    code = code ? code : allow_again();
    if (!code && sleeping.has_left)
        code = move_all(&sleeping.live, sleeping.store, MOVE_IN);
    if (!code)
        sleeping.has_left = 0;
    return code;
}

static void forget(void)
{
    store_drop(sleeping.store, sleeping.stored);
    sleeping.store = NULL;
    live_drop(&sleeping.live);
}

/* Takes all mappings down, then gives all handles back. */
static int give_back(void)
{
    int code = 0;
    for (struct mapping *m = mapping_at_least(0); !code && m;
         m = mapping_at_least(m->node.minor + 1)) {
        code = driver_chunk_unmap(m->backing->context, m->node.minor, m->backing->bytes);
        m->is_down = !code;
    }
    for (struct backing *b = mapping_first_backing(); !code && b; b = b->next)
        if (!(code = backing_empty(b))) {
            sleeping.has_left = 1;
            backing_note_away(b, 1);
        }
    return code;
}

/* Lists the live bytes and finds room for them. Returns NULL, or why that cannot be. */
static const char *make_ready(unsigned flags)
{
    const char *why = NULL;
    if (live_list(&sleeping.live))
        return "the host has too little free memory";
    if (sleeping.live.ordinary_bytes && !(flags & CACHALOT_SLEEP_PARTIAL))
        return "memory lies in ordinary segments, whose addresses cannot be kept (--partial moves "
               "the rest)";
    if (!mapping_first_backing())
        return "there is no mapped memory";
    store_drop(sleeping.store, sleeping.stored);
    sleeping.stored = sleeping.live.bytes;
    sleeping.store = store_make(sleeping.stored, &why);
    return sleeping.store ? NULL : why;
}

/* Returns NULL when the memory is away, or why nothing has changed. Idle memory goes first, so that the
 * wake makes less. Other threads may free meanwhile: what was live before may be idle and gone, so
 * the list is made anew. */
static const char *put_away(unsigned flags)
{
    const char *why = make_ready(flags);
    if (!why) {
        domain_empty_cache(process.domain, 0);
        why = make_ready(flags);
    }
    if (why)
        return why;
    if (move_all(&sleeping.live, sleeping.store, MOVE_OUT))
        return "the driver has refused a copy to the host";
    if (!give_back())
        return NULL;
    for (int i = 0; restore(); i++) {
        if (i == TRIES)
            return NULL; /* it sleeps, as far as it came; who needs it tries again */
        pause_ns(BETWEEN_TRIES_NS);
    }
    return "the driver has refused to take memory back";
}

/* Around what a thread does between two states of the gate. A thread that is cancelled in between
 * would leave the gate closed. */
static int mover_begins(enum gate_state from, enum gate_state to, int *cancel)
{
    if (!gate_change(from, to))
        return 0;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, cancel);
    process_inside++;
    gate_own(1);
    return 1;
}

static void mover_ends(enum gate_state from, enum gate_state to, int cancel)
{
    note(SLEEP_state, to);
    if (to == GATE_OPEN) {
        forget();
        lane_open(process.domain);
    }
    gate_own(0);
    gate_change(from, to);
    process_inside--;
    pthread_setcancelstate(cancel, &cancel);
}

static uint64_t away_bytes(void)
{
    uint64_t bytes = 0;
    for (int device = 0; device < PEER_DEVICES; device++)
        bytes += mapping_away(device);
    return bytes;
}

int sleep_is_on(void)
{
    return atomic_load(&gate.state) != GATE_OPEN;
}

int sleep_begin(unsigned flags, struct sleep_answer *answer)
{
    int cancel;
    if (!process_serving() || sleep_is_on()) {
        say(answer, process_serving() ? "it sleeps already" : "the program is ending");
        return -1;
    }
    uint64_t begin = now_ns();
    if (!mover_begins(GATE_OPEN, GATE_CLOSING, &cancel)) {
        say(answer, "it sleeps already");
        return -1;
    }
    note(SLEEP_state, GATE_CLOSING);
    atomic_store(&gate.held, (flags & CACHALOT_SLEEP_HOLD) != 0);
    const char *why = reason_against(begin + PATIENCE_NS);
    why = why ? why : put_away(flags);
    uint64_t bytes = sleeping.live.bytes, away = away_bytes(), took = now_ns() - begin;
    if (why) {
        count(SLEEP_refused, 1);
        say(answer, "stays awake: %s", why);
    } else {
        count(SLEEP_sleeps, 1);
        count(SLEEP_out_bytes, bytes);
        count(SLEEP_out_ns, took);
        note(SLEEP_stored_bytes, bytes);
        note(SLEEP_away_bytes, away);
        say(answer, "asleep: %llu bytes moved, %llu bytes of device memory given back, %.3f s",
            (unsigned long long)bytes, (unsigned long long)away, (double)took / 1e9);
    }
    mover_ends(GATE_CLOSING, why ? GATE_OPEN : GATE_ASLEEP, cancel);
    if (why)
        process_warn("sleep: %s", answer->text);
    return why ? -1 : 0;
}

/* Is the context beyond repair, so that nothing is kept by waiting? */
static int is_hopeless(int code)
{
    return code == CUDA_ERROR_DEINITIALIZED || code == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
           code == CUDA_ERROR_ILLEGAL_ADDRESS || code == CUDA_ERROR_LAUNCH_FAILED ||
           code == CUDA_ERROR_ECC_UNCORRECTABLE || code == CUDA_ERROR_INVALID_CONTEXT;
}

/* Asks other processes for idle memory, as a request does that finds none. */
static void ask_for_room(void)
{
    uint64_t bytes = away_bytes();
    const struct backing *backing = mapping_first_backing();
    while (backing && !backing->is_empty)
        backing = backing->next;
    if (backing && process_serving())
        neighbours_ask(backing->context, bytes, 0);
}

/* One try to wake. Returns 0 if the process is awake, or another thread moves memory; else the driver's
 * error. */
static int try_to_wake(void)
{
    int cancel;
    uint64_t begin = now_ns(), bytes;
    if (!mover_begins(GATE_ASLEEP, GATE_WAKING, &cancel))
        return 0;
    note(SLEEP_state, GATE_WAKING);
    int code = restore();
    if (code == CUDA_ERROR_OUT_OF_MEMORY)
        ask_for_room();
    if (is_hopeless(code)) {
        process_warn("wake: the context is broken (error %d): what slept is lost with it", code);
        code = 0;
    }
    bytes = sleeping.live.bytes;
    if (!code) {
        count(SLEEP_wakes, 1);
        count(SLEEP_in_bytes, bytes);
        count(SLEEP_in_ns, now_ns() - begin);
        note(SLEEP_stored_bytes, 0);
    }
    note(SLEEP_away_bytes, away_bytes());
    mover_ends(GATE_WAKING, code ? GATE_ASLEEP : GATE_OPEN, cancel);
    return code;
}

static void wake_on_demand(void)
{
    if (try_to_wake())
        pause_ns(BETWEEN_TRIES_NS);
}

int sleep_end(struct sleep_answer *answer)
{
    int code = 0;
    uint64_t begin = now_ns();
    for (int i = 0; sleep_is_on() && i < TRIES; i++)
        if ((code = try_to_wake()) != 0 || sleep_is_on())
            pause_ns(BETWEEN_TRIES_NS);
    if (sleep_is_on())
        say(answer, "sleeps on: the driver gives error %d", code);
    else
        say(answer, "awake: %.3f s", (double)(now_ns() - begin) / 1e9);
    return sleep_is_on() ? -1 : 0;
}

void sleep_start(void)
{
    atomic_store(&gate.wake, wake_on_demand);
}
