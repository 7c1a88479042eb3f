/* The directory of an output file: made, opened, locked. */
#ifndef CACHALOT_STATS_OUTPUT_DIRECTORY_H
#define CACHALOT_STATS_OUTPUT_DIRECTORY_H

#include "stats/page/layout.h"

#define OUTPUT_PATH_BYTES 1280
#define OUTPUT_NAMES 100 /* that a file tries where names are taken */

/* Opens the directory of `path`. Makes what is missing of it, except the directory in which the
 * process of `page` began. Returns it or -errno; *name is the last component. */
int output_directory_open(const struct page *page, const char *path, const char **name);

/* Two processes of one run may want one name at once, so the first takes a lock. The wait for it is
 * bounded: after a second a report may replace another, but none is late. Closing ends it. */
void output_directory_lock(int directory);

#endif
