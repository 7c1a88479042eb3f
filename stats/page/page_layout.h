/* The layout of the live page, format 1 (see page.h). Readers in other languages use `fields`. */
#ifndef CACHALOT_STATS_PAGE_PAGE_LAYOUT_H
#define CACHALOT_STATS_PAGE_PAGE_LAYOUT_H

#include <stddef.h>

#include "stats/events/events.h"
#include "stats/page/page_parts.h"
#include "stats/events/sites.h"

#define PAGE_MAGIC "CACHALOT"
#define PAGE_FORMAT 1
#ifndef CACHALOT_VERSION
#define CACHALOT_VERSION "0.1.0"
#endif

struct page {
    char magic[8];
    uint32_t format, header_bytes, page_bytes;
    uint32_t field_count, field_offset, device_offset, device_stride;
    _Atomic uint32_t device_count;
    uint32_t events_offset, sites_offset; /* 0: there are none */
    char tool[32];                        /* "cachalot 0.1.0" */

    uint64_t pid, start_ticks; /* start_ticks: field 22 of /proc/PID/stat */
    uint64_t generation, pid_namespace, uid;
    uint64_t start_realtime_ns, start_monotonic_ns;
    char exe[512], argv[2048], cwd[512], hostname[72], session[64], rank[16], rank_source[32];
    uint64_t argv_bytes; /* argv holds the arguments, each ended by NUL; 0: redacted */
    char path[512];      /* of the page itself; empty: no file has it */
    char output[1024];   /* the report's absolute path, expanded but for %n and %% */

    _Atomic uint32_t request;  /* futex: bits of page_request, set by who asks, cleared by us */
    _Atomic uint32_t answered; /* futex: counts requests carried out */
    char trace[1024];          /* the trace's absolute path, once it is open */
    uint64_t trace_file[2];    /* its device and inode */
    char answer[1024];         /* path of the report last written, or "error: …" */
    _Atomic uint32_t state, sequence;  /* enum page_state; number of the last report */
    _Atomic int32_t exit_code;         /* status given to exit; -1 unknown */
    _Atomic uint32_t signal_installed; /* the signal that we took; 0: none */

    stat_value coverage[COVERAGE_KINDS];
    stat_value oom_count, warnings_lost;
    uint32_t config_count;
    struct page_thread thread[PAGE_THREADS];
    struct page_other others[OTHER_KINDS];
    struct page_oom oom[PAGE_OOMS]; /* the last ones; event n is at n % PAGE_OOMS */
    struct page_warning warning[PAGE_WARNINGS];
    struct page_config config[PAGE_CONFIGS];
    char coverage_note[256]; /* why coverage is partial, or empty */
    struct cache_row cache[PAGE_CACHES];
};

static inline struct page_device *page_device(const struct page *page, unsigned i)
{
    uint64_t offset = page->device_offset + (uint64_t)i * page->device_stride;
    return (struct page_device *)((char *)page + offset);
}

static inline struct events *page_events(const struct page *page)
{
    return page->events_offset ? (struct events *)((char *)page + page->events_offset) : NULL;
}

static inline struct sites *page_sites(const struct page *page)
{
    return page->sites_offset ? (struct sites *)((char *)page + page->sites_offset) : NULL;
}

#endif
