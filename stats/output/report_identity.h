/* Whose report a file is, by its first bytes: a file may be large, and is not ours until they say so. */
#ifndef CACHALOT_STATS_OUTPUT_REPORT_IDENTITY_H
#define CACHALOT_STATS_OUTPUT_REPORT_IDENTITY_H

#include "stats/page/layout.h"

#define REPORT_HEAD_BYTES 4096 /* of a report: they hold its identity */

/* The part of a report that is the same in all reports of one process and in no other's: from the key
 * `start` to the key `uid` (document.c, process.c). */
struct report_identity {
    const char *text;
    size_t length;
    int final, harvest; /* the kind: exit or harvest; harvest */
};

/* Finds the identity in the first bytes of a report, as report_text makes it. Returns 0 if they are
 * of anything else. */
int report_identify(const char *report, struct report_identity *identity);

int report_is_same(const struct report_identity *one, const struct report_identity *other);

/* Whether the run of `cachalot run` in which that report was written is over, and the process of
 * `page` is not of that run. Nothing is known to be over on another host or in another pid namespace. */
int report_run_is_over(const struct report_identity *writer, const struct page *page);

#endif
