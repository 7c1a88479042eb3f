/* The service thread: carries out requests while the process runs, gives idle memory back, and looks
 * at the numbers for the series in the page. While nothing is requested or freed it sleeps. */
#ifndef CACHALOT_INTERPOSE_LIFECYCLE_SERVICE_H
#define CACHALOT_INTERPOSE_LIFECYCLE_SERVICE_H

/* Starts the thread, and takes the signal unless the program has it. */
void service_start(void);

/* A thread of the program ends. */
void service_thread_ends(void);

#endif
