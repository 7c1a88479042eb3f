/* What is recorded beyond the numbers when it is asked for: events and the trace. */
#ifndef CACHALOT_INTERPOSE_LIFECYCLE_TRACE_WRITER_H
#define CACHALOT_INTERPOSE_LIFECYCLE_TRACE_WRITER_H

#include "stats/page/page.h"

/* The page with room for what is to be recorded, or, where there is no room, without. */
struct page *trace_writer_page(unsigned devices, const char **problem);

/* There are page and domain, nothing is served yet. */
void trace_writer_start(void);

/* The process is served: from now on the trace is written, if there is one. */
void trace_writer_serve(void);

/* The process ends: the trace is whole. */
void trace_writer_end(void);

#endif
