/* Exported: dlopen and dlmopen (their entries are load_*.S). They only note that an object may be
 * loaded, and go on as the real ones, called as ours were: the loader looks at the caller. */
#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"
#include "interpose/resolve/unseen.h"
#include "interpose/stream/submit.h"

static void *nothing(void)
{
    return NULL;
}

/* Returns the real function, which our entry jumps to. It may run before our constructor. `frame`:
 * the stack of the entry's caller. */
void *load_begins(int in_namespace, const void *frame) __attribute__((visibility("hidden")));
REAL_NOT_SANITIZED void *load_begins(int in_namespace, const void *frame)
{
    void *function = real_open_find(in_namespace);
    if (process_enabled()) {
        unseen_load_begins(frame);
        if (process_serving())
            lane_watch(process.domain);
    }
    return function ? function : (void *)nothing;
}
