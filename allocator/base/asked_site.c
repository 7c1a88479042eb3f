/* The call site from which the calling thread asks for memory. */
#include "allocator/base/asked_site.h"

static _Thread_local __attribute__((tls_model("initial-exec"))) uint32_t asked_at;

void domain_asked_at(uint32_t site)
{
    asked_at = site;
}
uint32_t domain_asked_where(void)
{
    return asked_at;
}
