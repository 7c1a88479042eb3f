/* The begin and the end of service. start.c makes everything that lasts for the process's life, in
 * one order, and stops service when the program exits. */
#ifndef CACHALOT_INTERPOSE_LIFECYCLE_START_H
#define CACHALOT_INTERPOSE_LIFECYCLE_START_H

/* Begins service, after the program's own cuInit has returned success. A process that cannot be
 * served is left to the driver. */
void start_serving(void);

#endif
