/* Can a network card reach device memory without the driver's saying so? */
#ifndef CACHALOT_INTERPOSE_SLEEP_REGISTERED_H
#define CACHALOT_INTERPOSE_SLEEP_REGISTERED_H

/* Why memory may be registered with one; NULL: it is not. */
const char *registered_reason(void);

#endif
