/* Call sites: who asks for memory now, by the stack of the thread, and by that of Python where the
 * thread holds its lock. Only with CACHALOT_SITES. */
#ifndef CACHALOT_INTERPOSE_CALLERS_H
#define CACHALOT_INTERPOSE_CALLERS_H

#include "interpose/process.h"

/* Before anything is served: loads what the first look needs. */
void callers_start(void);

void callers_look(void);

/* Before each request. */
static inline void callers_note(void)
{
    if (__builtin_expect(process->sites != NULL, 0))
        callers_look();
}

#endif
