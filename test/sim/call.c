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

#define FAILURES_MAX 64

/* Entries number first to last of the call fail. */
struct failure {
    int call;
    unsigned long long first, last;
    CUresult error;
};

static atomic_ullong counts[CALL_COUNT];
static struct failure failures[FAILURES_MAX];
static int failure_count;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_int initialised;

static int call_by_name(const char *name, size_t length)
{
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

CUresult call_begin_early(enum sim_call call)
{
    pthread_once(&once, failures_read);
    unsigned long long number = atomic_fetch_add(&counts[call], 1) + 1;
    if (sim_symbols[call].since > config()->driver)
        return CUDA_ERROR_NOT_SUPPORTED;
    for (int i = 0; i < failure_count; i++) {
        const struct failure *failure = &failures[i];
        if (failure->call == (int)call && number >= failure->first && number <= failure->last)
            return failure->error;
    }
    return CUDA_SUCCESS;
}

CUresult call_begin(enum sim_call call, int per_thread)
{
    CUresult result = call_begin_early(call);
    if (result)
        return result;
    if (!atomic_load(&initialised) || engine_forked())
        return CUDA_ERROR_NOT_INITIALIZED;
    thread_self()->per_thread = per_thread;
    engine_lock();
    return CUDA_SUCCESS;
}

CUresult call_end(CUresult result)
{
    engine_unlock();
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
