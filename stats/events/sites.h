/* Call sites: the stacks that request memory. A table beside the page's numbers, in the same file.
 *
 * A site is found by its hash and keeps its place; reports show it once it is `ready`. Frames are
 * offsets into files: the reader of a report finds the names. All functions are safe in any thread
 * without a lock.
 */
#ifndef CACHALOT_STATS_EVENTS_SITES_H
#define CACHALOT_STATS_EVENTS_SITES_H

#include "stats/counters/stat_value.h"

#define SITES 1024u
#define SITE_FRAMES 16
#define SITE_TEXT 384
#define SITE_MODULES 256u
#define SITE_TRIES 32

struct site_module {
    stat_value ready;
    uint64_t bias; /* address in memory less address in the file */
    char path[240];
};

struct site {
    stat_value hash; /* 0: free */
    stat_value ready;
    stat_value live_bytes, live_blocks, allocations; /* requested bytes; samples */
    uint64_t kind; /* of the memory, as in snapshot_block: a stack has a site for each */
    uint64_t frames;
    uint64_t frame[SITE_FRAMES]; /* innermost first; module + 1 in the upper 16 bits */
    char python[SITE_TEXT];      /* lines `file:line function`, innermost first */
};

struct sites {
    uint64_t every;  /* one in so many requests is sampled */
    stat_value lost; /* requests from sites for which there was no place */
    struct site_module module[SITE_MODULES];
    struct site site[SITES];
};

/* The place of the site with that hash (not 0), + 1; 0 if the table is full. *is_new: the caller
 * fills the site and then sets `ready`. */
uint32_t sites_find(struct sites *sites, uint64_t hash, int *is_new);

/* The module with that path and bias, + 1, added if it is new; 0 if the table is full. */
uint32_t sites_module(struct sites *sites, const char *path, uint64_t bias);

/* A block of `bytes` from that place was handed out (live: 1) or freed (-1). Place 0: not known. */
void sites_count(struct sites *sites, uint32_t place, uint64_t bytes, int live);

#endif
