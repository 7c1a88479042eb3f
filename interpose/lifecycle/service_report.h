/* One report of this process, as the environment asks for it. */
#ifndef CACHALOT_INTERPOSE_LIFECYCLE_SERVICE_REPORT_H
#define CACHALOT_INTERPOSE_LIFECYCLE_SERVICE_REPORT_H

#include <time.h>

#include "stats/report/options.h"

/* Writes it, and notes in the page what came of it. Returns 0 or -errno. Caller holds the lock,
 * except when nothing is served. */
int service_report_write(enum report_kind kind, int with_segments);

/* Held while a report is written, or memory is given back for one. before: returns 0 if the lock was
 * taken by then (CLOCK_REALTIME). */
void service_report_lock(void);
int service_report_lock_before(const struct timespec *limit);
void service_report_unlock(void);

#endif
