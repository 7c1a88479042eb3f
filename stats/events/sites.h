/* Call sites: the stacks that request memory. A table beside the page's numbers, in the same file.
 *
 * A site is found by its hash and keeps its place; reports show it once it is `ready`. Frames are
 * offsets into files: the reader of a report finds the names.
 *
 * Either one request in N is counted, or requests are sampled by bytes: each byte has the chance of
 * 1 in M. A request of s bytes is then sampled with the chance p = 1 - exp(-s / M), and counts
 * s / p bytes in 1 / p blocks. So the sums are right on average, and their variance is known.
 *
 * Finding needs no lock. One thread at a time counts at a site: all memory of a site is of one
 * kind, and each kind has a lock.
 */
#ifndef CACHALOT_STATS_EVENTS_SITES_H
#define CACHALOT_STATS_EVENTS_SITES_H

#include "stats/counters/stat_value.h"

#define SITES 1024u
#define SITE_FRAMES 16
#define SITE_TEXT 384
#define SITE_MODULES 256u
#define SITE_TRIES 32
#define SITE_DEVICES 64u          /* devices whose peak has its sites */
#define SITES_BY_BYTES UINT32_MAX /* of `every`: requests are sampled by bytes */
#define SITE_PARTS 64u            /* of a block, since 1 / p is no whole number */
#define SITE_GRAIN 65536u         /* bytes; the unit of variances is its square */
#define SITE_RATES 25u            /* M is 2 MiB (rate 1) to 32 TiB (rate 25) */

struct site_module {
    stat_value ready;
    uint64_t bias; /* address in memory less address in the file */
    char path[240];
};

/* What a site holds: requested bytes, blocks in SITE_PARTS, variance of the bytes. */
struct site_held {
    stat_value bytes, blocks, variance;
};

struct site {
    stat_value hash; /* 0: free */
    stat_value ready;
    struct site_held live, at_peak; /* at_peak: as of peak number `peak` of the device */
    stat_value peak;
    stat_value allocations; /* in SITE_PARTS */
    stat_value kind;        /* of the memory, as in snapshot_block */
    stat_value device;      /* a stack has a site for each kind and device */
    stat_value frames;
    uint64_t frame[SITE_FRAMES]; /* innermost first; module + 1 in the upper 16 bits */
    char python[SITE_TEXT];      /* lines `file:line function`, innermost first */
};

/* The last peak of a device that its sites know: allocated bytes, and its number. */
struct site_peak {
    stat_value bytes, number;
};

struct sites {
    uint64_t every;  /* one in so many requests is counted, or SITES_BY_BYTES */
    stat_value rate; /* the coarsest rate so far */
    stat_value lost; /* requests from sites for which there was no place */
    struct site_peak peak[SITE_DEVICES];
    struct site_module module[SITE_MODULES];
    struct site site[SITES];
};

/* A site and the rate at which a request was sampled there, in 16 bits: what a block keeps. Rate 0:
 * the request counts as it is. */
#define SITE_PLACE_BITS 11
static inline uint32_t site_mark(uint32_t place, unsigned rate)
{
    return place ? place | rate << SITE_PLACE_BITS : 0;
}

/* The place of the site, + 1; 0: none. */
static inline uint32_t site_place(uint32_t mark)
{
    return mark & ((1u << SITE_PLACE_BITS) - 1);
}

/* The same, 0 where the site stands for others that were not sampled. */
static inline uint32_t site_exact(uint32_t mark)
{
    return mark >> SITE_PLACE_BITS ? 0 : mark;
}

static inline unsigned site_rate(uint32_t mark)
{
    return mark >> SITE_PLACE_BITS;
}

/* M in bytes. */
static inline uint64_t site_mean(unsigned rate)
{
    return UINT64_C(1) << (20 + rate);
}

/* The place of the site with that hash (not 0), + 1; 0 if the table is full. *is_new: the caller
 * fills the site and then sets `ready`. */
uint32_t sites_find(struct sites *sites, uint64_t hash, int *is_new);

/* The module with that path and bias, + 1, added if it is new; 0 if the table is full. */
uint32_t sites_module(struct sites *sites, const char *path, uint64_t bias);

/* Call it before sites_count, with the peak of allocated bytes of the device: what sites hold now
 * is what they held at that peak, if the peak is new. */
void sites_note_peak(struct sites *sites, uint64_t device, uint64_t bytes);

/* A block of `bytes` with that mark was handed out (live: 1) or freed (-1). */
void sites_count(struct sites *sites, uint32_t mark, uint64_t bytes, int live);

/* What a site held at the last peak of its device, which was of `bytes`. */
const struct site_held *sites_at_peak(const struct sites *sites, const struct site *site,
                                      uint64_t bytes);

#endif
