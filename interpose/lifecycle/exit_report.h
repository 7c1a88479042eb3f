/* The report at the end of a process. */
#ifndef CACHALOT_INTERPOSE_LIFECYCLE_EXIT_REPORT_H
#define CACHALOT_INTERPOSE_LIFECYCLE_EXIT_REPORT_H

/* For the service thread. prepare: before it begins. has_thread: whether it runs. answer: writes
 * the exit report if the exiting thread waits for it, and returns 1 then. */
void exit_report_prepare(void);
void exit_report_has_thread(int has);
int exit_report_answer(void);

/* Writes the report of a process that was served, in our destructor. */
void exit_report_in_destructor(void);

/* Has the report written at the very end, if that was not done yet or if blocks are freed after it.
 * Then the page goes. */
void exit_report_watch(void);

/* Writes a report if libcuda is in use but none of its calls came through the library
 * (dlmopen). */
void exit_report_none(void);

#endif
