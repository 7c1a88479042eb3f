/* Where the bytes lie while the process sleeps. */
#ifndef CACHALOT_INTERPOSE_SLEEP_STORE_H
#define CACHALOT_INTERPOSE_SLEEP_STORE_H

#include <stdint.h>

/* Memory of the host for `bytes` bytes. A forked child does not have it, and a core file leaves it out.
 * NULL: the host has too little; *why says so. */
char *store_make(uint64_t bytes, const char **why);
void store_drop(char *store, uint64_t bytes);

#endif
