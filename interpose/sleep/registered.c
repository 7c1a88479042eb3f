/* A program registers memory through libibverbs, which asks the kernel: no call passes here. So a process
 * that has loaded the library never sleeps. */
#include "interpose/sleep/registered.h"

#include <link.h>
#include <string.h>

static int is_verbs(struct dl_phdr_info *object, size_t size, void *unused)
{
    (void)size, (void)unused;
    return strstr(object->dlpi_name, "/libibverbs.so") != NULL;
}

const char *registered_reason(void)
{
    return dl_iterate_phdr(is_verbs, NULL)
               ? "network cards may have registered memory (libibverbs is loaded)"
               : NULL;
}
