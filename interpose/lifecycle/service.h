/* Reports while the process runs and when it ends: the service thread, the signal, the requests
 * from outside. */
#ifndef CACHALOT_INTERPOSE_LIFECYCLE_SERVICE_H
#define CACHALOT_INTERPOSE_LIFECYCLE_SERVICE_H

/* Makes the thread (all signals blocked) and takes the signal, unless the program has it. */
void service_start(void);

/* A thread of ours, with all signals blocked. Returns 0 or an error's number. */
int service_thread(void *(*serve)(void *));

/* The first and the last thing that such a thread does. */
void service_thread_begins(const char *name);
void service_thread_ends(void);

/* The report at the end of a process that was served. The page goes if it could be written, else it
 * stays. */
void service_report_exit(void);
void service_watch_end(void); /* before it and after: once more, if libraries that end later free */

/* If libcuda is mapped but nothing of it ever came through us (RTLD_DEEPBIND, dlmopen), a report
 * says so. */
void service_report_none(void);

#endif
