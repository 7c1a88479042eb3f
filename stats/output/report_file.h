/* The file of a report. */
#ifndef CACHALOT_STATS_OUTPUT_REPORT_FILE_H
#define CACHALOT_STATS_OUTPUT_REPORT_FILE_H

#include "stats/report/options.h"
#include "stats/report/snapshot.h"

/* Writes the report. Makes directories that are missing. Replaces an existing file of that name,
 * except when the file's writer lives or belongs to the same run: then .PID is added. The kinds
 * signal and request add .N (page->sequence, which the caller counts) before .json. `path` (size
 * bytes) receives the path written. A page that names /dev/null wants no report. Returns 0 or -errno
 * with nothing left behind. */
int report_write(const struct snapshot *snapshot, const struct report_options *options, char *path,
                 size_t size);

/* The `attempt`th name to try: the wanted one, then with .PID, then with .PID.1 and so on;
 * snapshots with .N before .json. Returns 0, -ENAMETOOLONG, or -ENOENT where the page names none. */
int report_file_name(const struct page *page, const struct report_options *options,
                     unsigned attempt, char *path, size_t size);

/* Whether the report of `page` may replace what has that name. 1: yes, or nothing has it; 0: take
 * another name; -errno where no report can be. */
int report_file_may_replace(int directory, const char *name, const struct page *page);

#endif
