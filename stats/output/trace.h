/* The trace: all events of a process in a file, for `cachalot replay` and `export`.
 *
 * The file is a header and then the events as they lie in the ring, event n at place n. They are
 * written out of the ring in the page, which loses none before; whatever kills the process, the
 * page has the rest. The file is opened anew each time: nothing of ours stays open in the host. It
 * is only written to if it is still the one that was made.
 */
#ifndef CACHALOT_STATS_OUTPUT_TRACE_H
#define CACHALOT_STATS_OUTPUT_TRACE_H

#include "stats/page/page.h"

#define TRACE_MAGIC "CACHALOT-TRACE\n"
#define TRACE_FORMAT 1
#define TRACE_HEADER_BYTES 4096
#define TRACE_EVENTS 65536 /* least room in the ring: 3 MiB */

struct trace_header {
    char magic[16];
    uint32_t format, event_bytes;
    uint64_t state;  /* enum events_trace; ON: cut short */
    uint64_t events; /* written */
    uint64_t pid, start_ticks, pid_namespace, start_realtime_ns;
    uint64_t begin_ns, first_ticks, first_ns, last_ticks, last_ns; /* see events_ns */
    char session[64], hostname[72], exe[512], page[512], reason[128];
};

/* Makes the file that `path` (absolute) names, or one of that name with .PID added where it has to
 * stay: only an empty file goes, and the trace of a process that has ended and was not of this
 * run. Fills page->trace and sets the ring's `trace` to ON. Returns 0 or -errno. */
int trace_open(struct page *page, const char *path);

/* Writes what is whole in the ring. `end`: the state that the trace is left in, or TRACE_ON; with
 * one, places that are not whole (their threads were killed) are left out. Returns 0 or -errno;
 * after an error the trace is STOPPED at what it has. One thread at a time. dead: the page is that
 * of a process that was killed. */
int trace_write(struct page *page, enum events_trace end, int dead);

/* What such an error means. */
const char *trace_problem(int error);

#endif
