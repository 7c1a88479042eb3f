/* The call site (stats/events/sites.h) that the calling thread asks for memory from. */
#ifndef CACHALOT_ALLOCATOR_BASE_ASKED_SITE_H
#define CACHALOT_ALLOCATOR_BASE_ASKED_SITE_H

#include <stdint.h>

/* All requests of this thread from now on are asked for at `site`; 0: unknown. */
void domain_asked_at(uint32_t site);
uint32_t domain_asked_where(void);

#endif
