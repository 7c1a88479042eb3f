/* The report as one JSON document, made from a page and, where there is one, a snapshot. Its schema
 * is report.schema.json. */
#ifndef CACHALOT_STATS_REPORT_DOCUMENT_H
#define CACHALOT_STATS_REPORT_DOCUMENT_H

#include "stats/report/options.h"
#include "stats/report/snapshot.h"

#define REPORT_VERSION "1.0.0"

/* The document as text, which the caller frees; NULL when there is no memory for it. */
char *report_text(const struct snapshot *snapshot, const struct report_options *options);

#endif
