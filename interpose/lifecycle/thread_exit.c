#include "interpose/lifecycle/thread_exit.h"

#include <pthread.h>

#include "interpose/context/capture.h"
#include "interpose/memory/memory.h"
#include "interpose/process/process.h"
#include "interpose/stream/submit.h"

static void ends(void *unused)
{
    (void)unused;
    capture_thread_ends();
    memory_thread_ends();
    submit_thread_ends();
}

static pthread_key_t key;
static int has_key; /* the program may have taken all */

static void make_key(void)
{
    has_key = pthread_key_create(&key, ends) == 0;
}

int thread_watch(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_key);
    return has_key && pthread_setspecific(key, process) == 0;
}
