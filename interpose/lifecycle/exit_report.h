/* The report at the end of a process. */
#ifndef CACHALOT_INTERPOSE_LIFECYCLE_EXIT_REPORT_H
#define CACHALOT_INTERPOSE_LIFECYCLE_EXIT_REPORT_H

/* Before the service thread begins; whether there is one; and what it does when it wakes: the exit
 * report, if somebody waits for that. */
void exit_report_prepare(void);
void exit_report_has_thread(int has);
void exit_report_answer(void);

/* The report at the end of a process that was served. The page goes if it could be written, else it
 * stays. */
void exit_report_write(void);

/* Before it and after: once more, if libraries that end later free. */
void exit_report_watch(void);

/* If libcuda is mapped but nothing of it ever came through us (RTLD_DEEPBIND, dlmopen), a report
 * says so. */
void exit_report_none(void);

#endif
