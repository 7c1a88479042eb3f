/* A device that looks smaller than it is (option device_size_mb). */
#ifndef CACHALOT_INTERPOSE_MEMORY_SMALLER_DEVICE_H
#define CACHALOT_INTERPOSE_MEMORY_SMALLER_DEVICE_H

/* Puts functions of a smaller device into the table of real functions, if the option is set: all
 * rooms then work as on one. Before service begins. */
void smaller_device_begin(void);

#endif
