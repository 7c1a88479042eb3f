/* The begin of service: everything that lasts for the process's life is made in one order here. */
#ifndef CACHALOT_INTERPOSE_LIFECYCLE_START_H
#define CACHALOT_INTERPOSE_LIFECYCLE_START_H

/* After the program's own cuInit returned success. Never fails: a process that cannot be served is
 * left to the driver. */
void start_serving(void);

#endif
