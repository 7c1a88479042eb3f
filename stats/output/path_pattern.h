/* Output patterns: CACHALOT_OUTPUT and CACHALOT_TRACE. */
#ifndef CACHALOT_STATS_OUTPUT_PATH_PATTERN_H
#define CACHALOT_STATS_OUTPUT_PATH_PATTERN_H

#include "stats/page/layout.h"

/* Expands a pattern (%p %h %e %r %t %q{VAR}) into an absolute path; a relative one lies below
 * `page->cwd`. NULL or empty: the default. %n and %% stay until the report is written. Values from
 * outside lose '/' and a leading '.', so that they cannot leave the directory; empty ones become
 * "none". `lookup` is getenv or a test's. Returns 0, or -1 with a static text in *problem. */
int report_expand(const struct page *page, const char *pattern, const char *(*lookup)(const char *),
                  char *path, size_t size, const char **problem);

#endif
