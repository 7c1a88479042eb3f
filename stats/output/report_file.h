/* The file of a report. */
#ifndef CACHALOT_STATS_OUTPUT_REPORT_FILE_H
#define CACHALOT_STATS_OUTPUT_REPORT_FILE_H

#include "stats/report/options.h"
#include "stats/report/snapshot.h"

/* Writes the report. Makes directories that are missing. It replaces an empty file, the earlier last
 * report of the same process, and, within `cachalot run`, a report of a run that is over. Any other
 * file of that name stays, and the report's name gets .PID added. The kinds signal and request add .N
 * (page->sequence, which the caller counts) before .json. `path` (size bytes) receives the path
 * written. A page that names /dev/null wants no report. Returns 0 or -errno with nothing left
 * behind. */
int report_write(const struct snapshot *snapshot, const struct report_options *options, char *path,
                 size_t size);

/* The `attempt`th name to try: the wanted one, then with a suffix (output_add_suffix); snapshots with
 * .N before .json. Returns 0, -ENAMETOOLONG, or -ENOENT where the page names none. */
int report_file_name(const struct page *page, const struct report_options *options,
                     unsigned attempt, char *path, size_t size);

/* Opens what has that name, if `report` may replace it: renaming over it is safe until that descriptor
 * is closed. first: it is the wanted name. Returns it; -ENOENT: nothing has the name; -EEXIST: take another name; another -errno: no
 * report can be there. */
int report_file_take(int directory, const char *name, unsigned owner, const char *report,
                     const struct page *page, int first);

#endif
