/* Events, call sites and the trace: what is recorded, when asked for, beyond the counters. */
#ifndef CACHALOT_INTERPOSE_LIFECYCLE_TRACE_WRITER_H
#define CACHALOT_INTERPOSE_LIFECYCLE_TRACE_WRITER_H

#include "stats/page/page.h"

/* Makes the process's page with room for events and call sites, or without if there is no room.
 * *problem is a warning, or NULL. */
struct page *trace_writer_page(unsigned devices, const char **problem);

/* Begins to record. Page and domain exist, nothing is served yet. */
void trace_writer_start(void);

/* Begins to write the trace, if one is asked for. The process is served. */
void trace_writer_serve(void);

/* Writes all events until now, at the end of the process; for_good: none follow. Returns 1 if the trace
 * could not be written, which a warning says. */
int trace_writer_end(int for_good);

#endif
