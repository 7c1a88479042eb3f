/* The call site (stats/events/sites.h) from which the calling thread asks for memory. It is
 * thread-local: no lock. */
#ifndef CACHALOT_ALLOCATOR_BASE_ASKED_SITE_H
#define CACHALOT_ALLOCATOR_BASE_ASKED_SITE_H

#include <stdint.h>

/* at: sets the call site of this thread's next requests; 0: unknown. where: returns it. */
void domain_asked_at(uint32_t site);
uint32_t domain_asked_where(void);

#endif
