/* Copies and sets that leave their block (option bounds). */
#ifndef CACHALOT_INTERPOSE_MEMORY_BOUNDS_H
#define CACHALOT_INTERPOSE_MEMORY_BOUNDS_H

/* Puts functions that look at their ranges into the table of real functions, if the option is set.
 * Before service begins, and after smaller_device_begin. */
void bounds_begin(void);

#endif
