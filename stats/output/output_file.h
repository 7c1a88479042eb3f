/* The report's file: which name it gets, and putting it there whole or not at all. */
#ifndef CACHALOT_STATS_OUTPUT_OUTPUT_FILE_H
#define CACHALOT_STATS_OUTPUT_OUTPUT_FILE_H

#include <stddef.h>

#include "stats/output/report.h"

#define REPORT_PATH_BYTES 1280
#define REPORT_CANDIDATES 100

/* The `attempt`th name to try: the wanted one, then with .PID, then with .PID.1 and so on;
 * snapshots with .N before .json. Returns 0, -ENAMETOOLONG, or -ENOENT where the page names none. */
int report_file_name(const struct page *page, const struct report_options *options,
                     unsigned attempt, char *path, size_t size);

/* Opens the directory of `path`, made where missing, but for the one in which the process of `page`
 * began. Returns it or -errno; *name is the last component. */
int report_file_directory(const struct page *page, const char *path, const char **name);

/* Two processes of one run may want one name at once. Whoever holds the lock too long is not
 * waited for: then a report may replace another, but none is late. It ends with `directory`. */
void report_file_lock(int directory);

/* May the report of `page` replace what has that name? 1: yes, or nothing has; 0: another name
 * is to be taken; -errno where no report can be. */
int report_file_may_replace(int directory, const char *name, const struct page *page);

#endif
