/* Writes reports of this process, as the environment asks for them. */
#ifndef CACHALOT_INTERPOSE_LIFECYCLE_SERVICE_REPORT_H
#define CACHALOT_INTERPOSE_LIFECYCLE_SERVICE_REPORT_H

#include <time.h>

#include "stats/report/options.h"

/* Writes one, and notes the path or the error in the page. Returns 0 or -errno. The caller holds
 * the lock, except when the process is not served. */
int service_report_write(enum report_kind kind, int with_segments);

/* The lock of reports: held while one is written, or idle memory is given back. lock_before returns
 * 0 if it got the lock until then (CLOCK_REALTIME). */
void service_report_lock(void);
int service_report_lock_before(const struct timespec *limit);
void service_report_unlock(void);

#endif
