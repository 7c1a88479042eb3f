#include "call.h"

#include "config.h"
#include "context.h"
#include "engine.h"
#include "sim.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FAILURES_MAX 64

/* Entries number first to last of the call fail. */
struct failure {
    int call; /* CALL_COUNT: of any */
    unsigned long long first, last;
    CUresult error;
};

static atomic_ullong counts[CALL_COUNT + 1]; /* and all together */
static struct failure failures[FAILURES_MAX];
static int failure_count;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_int initialised;
static unsigned delays[CALL_COUNT]; /* one call in so many is held up; 0: none */
static _Thread_local enum sim_call current;
static cachalot_sim_callback *_Atomic subscriber;

static int call_by_name(const char *name, size_t length)
{
    if (length == 1 && *name == '*')
        return CALL_COUNT;
    for (int call = 0; call < CALL_COUNT; call++)
        if (strlen(sim_symbols[call].name) == length &&
            strncmp(sim_symbols[call].name, name, length) == 0)
            return call;
    return -1;
}

/* A failure nobody injects is a test that tests nothing: say so and stop. */
static _Noreturn void failure_refuse(const char *text)
{
    fprintf(stderr, "cachalot-sim: CACHALOT_SIM_FAIL=%s is not FUNCTION:N[+][:ERROR][,...]\n",
            text);
    abort();
}

static void failures_read(void)
{
    const char *text = config()->fail;
    while (text && *text) {
        size_t length = strcspn(text, ":");
        int call = call_by_name(text, length);
        if (call < 0 || text[length] != ':' || failure_count == FAILURES_MAX)
            failure_refuse(config()->fail);
        char *end;
        struct failure failure = {.call = call, .error = CUDA_ERROR_OUT_OF_MEMORY};
        failure.first = failure.last = strtoull(text + length + 1, &end, 10);
        if (*end == '+') {
            failure.last = ~0ull;
            end++;
        }
        if (*end == ':')
            failure.error = (CUresult)strtoul(end + 1, &end, 10);
        if (failure.first == 0 || (*end && *end != ','))
            failure_refuse(config()->fail);
        failures[failure_count++] = failure;
        text = *end ? end + 1 : end;
    }
}

static void delays_read(void)
{
    const char *text = config()->delay;
    int plain = text && *text >= '0' && *text <= '9';
    unsigned all = plain ? (unsigned)strtoul(text, NULL, 10) : 0;
    for (int call = 0; call < CALL_COUNT; call++)
        delays[call] = all;
    while (text && *text && !plain) {
        size_t length = strcspn(text, ":");
        int call = call_by_name(text, length);
        if (call < 0 || call == CALL_COUNT || text[length] != ':') {
            fprintf(stderr, "cachalot-sim: CACHALOT_SIM_DELAY=%s is not N or FUNCTION:N[,...]\n",
                    config()->delay);
            abort();
        }
        delays[call] = (unsigned)strtoul(text + length + 1, (char **)&text, 10);
        text += *text == ',';
    }
}

static void environment_read(void)
{
    failures_read();
    delays_read();
}

CUresult call_begin_early(enum sim_call call)
{
    pthread_once(&once, environment_read);
    unsigned long long number = atomic_fetch_add(&counts[call], 1) + 1,
                       of_all = atomic_fetch_add(&counts[CALL_COUNT], 1) + 1;
    if (sim_symbols[call].since > config()->driver)
        return CUDA_ERROR_NOT_SUPPORTED;
    for (int i = 0; i < failure_count; i++) {
        const struct failure *failure = &failures[i];
        int any = failure->call == CALL_COUNT;
        unsigned long long n = any ? of_all : number;
        if ((any || failure->call == (int)call) && n >= failure->first && n <= failure->last)
            return failure->error;
    }
    return CUDA_SUCCESS;
}

/* Holds up some calls, so that threads meet in ways that are rare. */
static void call_delay(enum sim_call call)
{
    static _Thread_local uint64_t random;
    if (!delays[call])
        return;
    if (!random)
        random = (uint64_t)(uintptr_t)&random;
    random = random * 6364136223846793005u + 1442695040888963407u;
    uint64_t drawn = random >> 33;
    if (drawn % delays[call] == 0)
        nanosleep(&(struct timespec){.tv_nsec = (long)(drawn / delays[call] % 150000)}, NULL);
}

static void tell(enum sim_call call, int returning)
{
    cachalot_sim_callback *callback = atomic_load(&subscriber);
    if (callback)
        callback(sim_symbols[call].name, returning);
}

void cachalot_sim_subscribe(cachalot_sim_callback *callback)
{
    atomic_store(&subscriber, callback);
}

CUresult call_begin(enum sim_call call, int per_thread)
{
    CUresult result = call_begin_early(call);
    if (result)
        return result;
    if (!atomic_load(&initialised) || engine_forked())
        return CUDA_ERROR_NOT_INITIALIZED;
    tell(call, 0);
    thread_self()->per_thread = per_thread;
    current = call;
    call_delay(call);
    engine_lock();
    return CUDA_SUCCESS;
}

CUresult call_end(CUresult result)
{
    enum sim_call call = current;
    engine_unlock();
    call_delay(call);
    tell(call, 1);
    return result;
}

void call_set_initialised(void)
{
    if (!atomic_exchange(&initialised, 1))
        engine_prepare();
}

unsigned long long cachalot_sim_calls(const char *function)
{
    int call = call_by_name(function, strlen(function));
    return call < 0 ? 0 : atomic_load(&counts[call]);
}

const char *cachalot_sim_name(size_t function)
{
    return function < CALL_COUNT ? sim_symbols[function].name : NULL;
}
