/* The report: a page, and where they are at hand the blocks behind it, as one JSON document.
 *
 * schema: stats/report.schema.json, version REPORT_VERSION. Built with jansson, written to a
 * temporary file beside the target, then renamed over it.
 */
#ifndef CACHALOT_STATS_OUTPUT_REPORT_H
#define CACHALOT_STATS_OUTPUT_REPORT_H

#include <stddef.h>

#include "stats/page/layout.h"

#define REPORT_VERSION "1.0.0"

/* One block, as the allocator lists it for a report: plain values, no pointers into the
 * allocator. */
struct snapshot_block {
    uint64_t address, size_bytes, requested_bytes, segment_address, segment_bytes;
    uint32_t device;
    uint8_t state;  /* enum snapshot_state */
    uint8_t pool;   /* enum stat_pool */
    uint8_t mapped; /* its segment is a run of mapped memory, no piece of the driver's */
    uint32_t site;  /* its place (sites.h); 0: not known */
};
enum snapshot_state { SNAPSHOT_ALLOCATED, SNAPSHOT_PENDING, SNAPSHOT_REUSABLE };

struct snapshot {
    const struct page *page;
    const struct snapshot_block *blocks; /* by segment, then address; NULL: not at hand (harvest) */
    size_t block_count;
    int with_segments; /* list segments and blocks in the document */
};

enum report_kind { REPORT_EXIT, REPORT_SIGNAL, REPORT_REQUEST, REPORT_HARVEST };

struct report_options {
    enum report_kind kind;
    const char *exit_reason;    /* "running", "exit", "killed", "signal", "exec", "unknown" */
    int exit_code, exit_signal; /* -1 unknown, 0 none */
    const char *output;         /* path instead of the page's; NULL: the page's */
};

/* The document as text, to be freed by the caller; NULL when there was no memory for it. */
char *report_text(const struct snapshot *snapshot, const struct report_options *options);

/* Writes the report; missing directories are made; an existing file of that name is replaced
 * unless its writer lives or belongs to the same session (then .PID is added); kinds signal and
 * request insert .N (page->sequence, counted by the caller) before .json. `path` (size bytes)
 * receives the path written. A page that names /dev/null wants none. Returns 0 or -errno with
 * nothing left behind. */
int report_write(const struct snapshot *snapshot, const struct report_options *options, char *path,
                 size_t size);

/* Expands an output pattern (%p %h %e %r %t %q{VAR}; %n and %% stay until the report is written;
 * NULL or empty: the default) into an absolute path, relative ones below `page->cwd`. Values
 * from outside lose '/' and a leading '.', so that they cannot leave the directory; empty ones
 * become "none". `lookup` is getenv or a test's. Returns 0, or -1 with a static text in
 * *problem. */
int report_expand(const struct page *page, const char *pattern, const char *(*lookup)(const char *),
                  char *path, size_t size, const char **problem);

#endif
