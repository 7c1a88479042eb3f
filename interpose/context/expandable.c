/* The decision for expandable_segments:auto, and for True with ipc:dedicated. Every process gets
 * mapped memory, with the following exceptions. MPI and UCX, if loaded at the first request, send
 * the driver's own IPC handles to processes that may run without this library or cannot reach our
 * socket (other containers). The option ipc:dedicated asks for such handles. All other processes
 * share mapped memory by handles of ours (ipc.h), if the device's memory can be exported. NVSHMEM
 * is no exception: its heap is memory of cuMemCreate already. */
#include "interpose/context/expandable.h"

#include <link.h>
#include <pthread.h>
#include <string.h>

#include "interpose/context/virtual_memory.h"
#include "interpose/process/process.h"

static struct WIPED decision {
    pthread_mutex_t lock; /* of the option until it is decided, and of its row in the page */
} decision;
static const struct wiped wiped WIPED_ENTRY = {&decision, sizeof decision};

/* libmpi_: HPE Cray's, one for each compiler (libmpi_gnu.so). */
static const char *const libraries[] = {"libmpi.so", "libmpich.so", "libmpi_", "libucp.so"};

/* Stores the name of such a library in `data` if this object is one. */
static int is_library(struct dl_phdr_info *object, size_t size, void *data)
{
    (void)size;
    const char *slash = strrchr(object->dlpi_name, '/');
    const char *name = slash ? slash + 1 : object->dlpi_name;
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        if (strncmp(name, libraries[i], strlen(libraries[i])) == 0)
            *(const char **)data = libraries[i];
    return *(const char **)data != NULL;
}

/* The library, option or property that excludes mapped memory; NULL: nothing does. */
static const char *reason_against(const struct options *options, int lends, int strangers)
{
    const char *library = NULL;
    if (options->ipc == IPC_DEDICATED)
        return "the option ipc";
    /* /proc/self/maps is not read: in a CUDA program it is long and takes milliseconds. */
    if (dl_iterate_phdr(is_library, &library))
        return library;
    if (strangers)
        return "devices without peer access";
    return lends ? NULL : "memory that cannot be exported";
}

void expandable_decide(CUdevice device)
{
    struct options *options = &process.config.options;
    /* Outside the lock: the driver may call a tool back, which may call us. */
    int lends = driver_lends(device);
    int strangers = options->expandable == EXPANDABLE_AUTO && driver_has_strangers();
    pthread_mutex_lock(&decision.lock);
    if (options->expandable == EXPANDABLE_AUTO ||
        (options->expandable == EXPANDABLE_TRUE && options->ipc == IPC_DEDICATED)) {
        const char *why = reason_against(options, lends, strangers);
        options->expandable = why ? EXPANDABLE_FALSE : EXPANDABLE_TRUE;
        domain_decide(process.domain, options->expandable);
        page_config_in_force(process.page, "expandable_segments", why ? "False" : "True", why);
    }
    pthread_mutex_unlock(&decision.lock);
}

void expandable_check(CUdevice device, const struct allocator *allocator)
{
    const struct options *options = &process.config.options;
    if (options->expandable != EXPANDABLE_TRUE || !options->cache || allocator_maps(allocator))
        return;
    process_warn("device %d: no mapped memory (expandable_segments): the driver has none, or the "
                 "process no addresses for it (ulimit -v); ordinary segments",
                 device);
    pthread_mutex_lock(&decision.lock);
    page_config_in_force(process.page, "expandable_segments", "False", "a device without it");
    pthread_mutex_unlock(&decision.lock);
}
