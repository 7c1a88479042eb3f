#include "interpose/process/thread_exit.h"

#include <pthread.h>

static void (*const *calls)(void);
static pthread_key_t key;
static int has_key; /* 0: the program has taken all keys */

static void ends(void *unused)
{
    (void)unused;
    for (void (*const *call)(void) = calls; *call; call++)
        (*call)();
}

static void make_key(void)
{
    has_key = pthread_key_create(&key, ends) == 0;
}

void thread_exit_calls(void (*const *functions)(void))
{
    calls = functions;
}

int thread_exit_watch(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_key);
    return has_key && pthread_setspecific(key, &key) == 0;
}
