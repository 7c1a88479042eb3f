/* Call sites: who asks for memory now, by the stack of the thread, and by that of Python. Only
 * with CACHALOT_SITES. */
#ifndef CACHALOT_INTERPOSE_CALL_SITES_STACK_H
#define CACHALOT_INTERPOSE_CALL_SITES_STACK_H

#include "interpose/process/process.h"

/* Before anything is served: loads what the first look needs. */
void call_sites_start(void);

/* Before each request. */
void call_sites_look(void);

#endif
