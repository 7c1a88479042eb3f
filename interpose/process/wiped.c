#include "interpose/process/wiped.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

/* Set by the linker: the entries of all files. */
extern const struct wiped __start_wiped_list[] __attribute__((visibility("hidden")));
extern const struct wiped __stop_wiped_list[] __attribute__((visibility("hidden")));

static void wipe(void)
{
    for (const struct wiped *entry = __start_wiped_list; entry < __stop_wiped_list; entry++)
        memset(entry->start, 0, entry->bytes);
}

static void wipe_after_fork(void)
{
    pthread_atfork(NULL, NULL, wipe);
}

void wiped_from_now(const struct wiped *entry)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (madvise(entry->start, entry->bytes, MADV_WIPEONFORK))
        pthread_once(&once, wipe_after_fork);
}

void wiped_all_from_now(void)
{
    for (const struct wiped *entry = __start_wiped_list; entry < __stop_wiped_list; entry++)
        wiped_from_now(entry);
}
