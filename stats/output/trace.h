/* The trace: all events of a process in a file, for `cachalot replay` and `export`.
 *
 * The file is a header and then the events as they lie in the ring, event n at place n. trace_write
 * copies them out of the ring in the page before they are overwritten; whatever kills the process,
 * the page has the rest. Each write opens the file anew, so that no descriptor stays open in the
 * program. It writes only if the file is still the one that trace_open made.
 */
#ifndef CACHALOT_STATS_OUTPUT_TRACE_H
#define CACHALOT_STATS_OUTPUT_TRACE_H

#include "stats/page/page.h"

#define TRACE_MAGIC "CACHALOT-TRACE\n"
#define TRACE_FORMAT 1
#define TRACE_HEADER_BYTES 4096
#define TRACE_EVENTS 65536 /* the smallest ring of a trace: 3 MiB */

struct trace_header {
    char magic[16];
    uint32_t format, event_bytes;
    uint64_t state;  /* enum events_trace; ON: cut short */
    uint64_t events; /* written */
    uint64_t pid, start_ticks, pid_namespace, start_realtime_ns;
    uint64_t begin_ns, first_ticks, first_ns, last_ticks, last_ns; /* see events_ns */
    char session[64], hostname[72], exe[512], page[512], reason[128];
};

/* Makes the file that `path` (absolute) names. It replaces an empty file, and the trace of a process
 * that has ended and is not of this run. Any other file stays, and the new name gets .PID added.
 * Fills page->trace and sets the ring's `trace` to ON. Returns 0 or -errno. One thread at a time. */
int trace_open(struct page *page, const char *path);

/* Writes the whole places of the ring. `end`: the state that ends the trace, or TRACE_ON to go on. At
 * the end it skips places that are not whole, because their threads were killed. Returns 0 or
 * -errno; after an error the trace is STOPPED at what it has. One thread at a time. dead: the page
 * is that of a killed process. */
int trace_write(struct page *page, enum events_trace end, int dead);

/* An error of these functions as text. */
const char *trace_problem(int error);

#endif
