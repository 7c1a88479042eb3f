/* Exported: dlopen and dlmopen (their entries are load_*.S). They only note that an object may be
 * loaded, and go on as the real ones, called as ours were: the loader looks at the caller. */
#include "interpose/lifecycle/request.h"
#include "interpose/process/process.h"
#include "interpose/resolve/bindings.h"
#include "interpose/resolve/elf_tables.h"
#include "interpose/resolve/real_driver.h"
#include "interpose/resolve/unseen.h"
#include "interpose/stream/submit.h"

static void *nothing(void)
{
    return NULL;
}

/* Returns the real function, which our entry jumps to. It may run before our constructor. `frame`:
 * the stack of the entry's caller; `file`: the argument. */
void *load_begins(int in_namespace, const void *frame, const char *file)
    __attribute__((visibility("hidden")));
REAL_NOT_SANITIZED void *load_begins(int in_namespace, const void *frame, const char *file)
{
    void *function = real_open_find(in_namespace);
    bindings_return_dlopen();
    if (process_enabled()) {
        unseen_load_begins(frame);
        if (file && elf_names_cuda(file))
            request_expect_signal();
        if (process_serving())
            lane_watch(process.domain);
    }
    return function ? function : (void *)nothing;
}
