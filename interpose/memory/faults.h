/* Faults of the program with memory: what it freed, copied or wrote that was not its own. They stand
 * in the page (stats/page/layout_faults.h). Nothing here changes an answer. */
#ifndef CACHALOT_INTERPOSE_MEMORY_FAULTS_H
#define CACHALOT_INTERPOSE_MEMORY_FAULTS_H

#include "allocator/share.h"
#include "stats/page/layout_faults.h"

/* domain_find, counted as work of the library. */
int faults_look(uint64_t address, struct block_place *place);

/* `call`, a function of the driver, was given a range that leaves its block: `past` bytes of it, where
 * that is known. */
void faults_note_range(enum fault_kind kind, const char *call, uint64_t address, uint64_t bytes,
                       uint64_t past);

/* `bytes` bytes from `address` on, behind the request of a block that the program frees or holds, were
 * written. */
void faults_note_overrun(const struct block_place *place, uint64_t address, uint64_t bytes);

/* `call` was to free `address`, where the program holds no block of the cache (`in_cache`), or no
 * memory of the driver. */
void faults_note_free(const char *call, uint64_t address, int in_cache);

/* The block at `address` is about to be freed. Later faults in its memory name its call sites. Call it
 * with process.watched only. */
void faults_remember(uint64_t address);

#endif
