/* The service thread: carries out requests while the process runs, and gives idle memory back when
 * other processes need it. */
#ifndef CACHALOT_INTERPOSE_LIFECYCLE_SERVICE_H
#define CACHALOT_INTERPOSE_LIFECYCLE_SERVICE_H

/* Starts the thread, and takes the signal unless the program has it. */
void service_start(void);

#endif
