/* The layout of the live page, format 1 (see page.h). Readers in other languages use the table of
 * fields. What the page counts beside the devices' statistics stands in lists here, as in
 * counters/lists.h: adding a number is adding a line. */
#ifndef CACHALOT_STATS_PAGE_LAYOUT_H
#define CACHALOT_STATS_PAGE_LAYOUT_H

#include <stddef.h>

#include "stats/counters/stats.h"
#include "stats/events/events.h"
#include "stats/events/sites.h"
#include "stats/page/layout_faults.h"
#include "stats/page/layout_neighbours.h"
#include "stats/page/layout_sleep.h"
#include "stats/page/request.h"
#include "stats/page/series.h"

#define PAGE_MAGIC "CACHALOT"
#define PAGE_FORMAT 1
#ifndef CACHALOT_VERSION
#define CACHALOT_VERSION "0.1.0"
#endif

/* 0: being made. The process that makes the page sets it to running. */
enum page_state { PAGE_RUNNING = 1, PAGE_EXITING = 2, PAGE_REPORTED = 3 };

/* Memory that the program took past the cache: uncached allocations.  X(name, kind): the name in
 * `others` of the report, and that in `kinds` */
#define UNCACHED_LIST(X)                                                                           \
    X(device, device)                                                                              \
    X(pool, stream_ordered)                                                                        \
    X(host, pinned)                                                                                \
    X(managed, managed)                                                                            \
    X(vmm, vmm)                                                                                    \
    X(array, array)                                                                                \
    X(imported, imported)                                                                          \
    X(graph, graph) /* allocated by a launched graph, freed by the program: counted at the free */
enum uncached_kind {
#define X(name, kind) UNCACHED_##name,
    UNCACHED_LIST(X)
#undef X
        UNCACHED_KINDS
};

/* How the program reached CUDA.  X(name, meaning) */
#define COVERAGE_LIST(X)                                                                           \
    X(dlsym_lookups, "driver functions handed out by dlsym")                                       \
    X(proc_address_lookups, "driver functions handed out by cuGetProcAddress")                     \
    X(linked_calls, "calls of driver functions that the program is linked to")                     \
    X(table_entries, "table entries of other objects that held a function of CUDA, led to us")     \
    X(init_calls, "cuInit calls that succeeded")                                                   \
    X(unseen_frees, "driver allocations freed through us that we had not seen made")               \
    X(forwarded_allocations, "cuMemAlloc calls answered by the driver for the program")            \
    X(unseen_work, "ways found by which work reaches the device past us")                          \
    X(context_losses, "contexts destroyed or reset while they had blocks")                         \
    X(fail_alloc_requests, "allocations that the option fail_alloc counted")                       \
    X(fail_alloc_refused, "allocations that it refused")                                           \
    X(fit_refused, "driver allocations that did not fit in device_size_mb")                        \
    X(fills, "allocations that the option fill counted")
enum coverage_kind {
#define X(name, meaning) COVERAGE_##name,
    COVERAGE_LIST(X)
#undef X
        COVERAGE_KINDS
};

/* Calls that submit work to a stream, by the kinds that CUPTI records.  X(name, meaning) */
#define SUBMISSION_LIST(X)                                                                         \
    X(kernels, "launches of kernels")                                                              \
    X(copies, "copies; a batch is one")                                                            \
    X(sets, "sets")                                                                                \
    X(graphs, "launches of graphs, whatever is in them")                                           \
    X(host_functions, "functions of the host and callbacks")                                       \
    X(memory_operations, "waits for values, writes of values, and batches of them")                \
    X(pool_operations, "allocations and frees in a stream")                                        \
    X(others, "prefetches, uploads of graphs, mapped arrays and graphics, semaphores")
enum submission_kind {
#define X(name, meaning) SUBMISSION_##name,
    SUBMISSION_LIST(X)
#undef X
        SUBMISSION_KINDS
};

struct page_uncached {
    stat_value bytes, peak_bytes, allocated, freed; /* the last two count calls */
    stat_value total_bytes;                         /* ever allocated */
    stat_value ended;                               /* allocations that ended with their context */
    stat_value unbooked;                            /* that found no room on the books */
    stat_value peak_blocks;                         /* of pinned memory: most at once */
    stat_value live[HISTOGRAM_BINS], live_bytes[HISTOGRAM_BINS];
};

struct page_config {
    char name[32], value[64];
    char source[32]; /* default, CACHALOT_CONF, PYTORCH_ALLOC_CONF … */
};

/* One number, at `offset` from the start of the page. With a stride each device's row has one, that
 * far apart. With parts it is the sum of that many numbers, part_stride apart. A number "cache.…"
 * is added to a device's own number when "cache.device" of the same part is the device's row plus
 * one (cache_row.h). */
struct page_field {
    char name[56]; /* dotted, e.g. "device.allocated_bytes.allocated.small_pool" */
    uint32_t offset, stride, parts, part_stride;
    char unit[8]; /* count, bytes, ns, text, bool */
};

/* What a thread counts without an atomic operation. All threads without a row of their own share row
 * 0, and count there with atomic operations. */
struct page_thread {
    _Alignas(64) stat_value submissions[SUBMISSION_KINDS];
};

#define PAGE_THREADS 64
#define PAGE_CACHES 128 /* threads that allocate without the lock; all others take it */
#define PAGE_CONFIGS 24
#define PAGE_DEVICES 1024 /* most rows */

struct page_device {
    char name[96], uuid[48]; /* uuid "GPU-xxxxxxxx-…" */
    uint64_t ordinal, total_bytes;
    stat_value used; /* 1 once a context of it was served */
    struct device_stats stats;
};

/* The largest page size of any kernel for this processor. */
#if defined(__x86_64__)
#define PAGE_PART 4096
#else
#define PAGE_PART 65536
#endif

/* What a page gives its holder to work with: pointers into it, checked or made by the holder itself.
 * It lies in the head of the page's memory and never in the file. */
struct page_own {
    struct page *told; /* the head in the file, as readers see it; NULL: a reader's copy */
    uint64_t file[2];  /* device and inode of the file */
    struct events recorder;
    struct events *events; /* the recorder of the page, or of the page that this is a copy of; NULL:
                              none are recorded */
    struct sites *sites;   /* NULL: none are recorded */
    struct series *series; /* the process's own series, as many as the page has; NULL: a reader's */
};

/* The head, up to `request`, is private memory in the page's own process, which acts on it. The file
 * has a copy for readers: page_tell renews it. Everything from `request` on is shared; a process may
 * find anything there, and acts on nothing of it but requests. */
/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): what is shared has pages of its own */
struct page {
    char magic[8];
    uint32_t format, header_bytes, page_bytes;
    uint32_t field_count, field_offset, device_offset, device_stride, device_count;
    uint32_t events_offset, sites_offset; /* 0: there are none */
    uint32_t series_offset, series_count;
    char tool[32]; /* "cachalot 0.1.0" */

    uint64_t pid, start_ticks; /* start_ticks: field 22 of /proc/PID/stat */
    uint64_t generation, pid_namespace, uid;
    uint64_t start_realtime_ns, start_monotonic_ns;
    char exe[512], argv[2048], cwd[512], hostname[72], session[64], rank[16], rank_source[32];
    uint64_t argv_bytes; /* argv holds the arguments, each ended by NUL; 0: redacted */
    char program[128];   /* what people call the program (program.h) */
    char path[512];      /* of the page itself; empty: no file has it */
    char output[1024];   /* the report's absolute path, expanded except %n and %% */

    char trace[1024];                  /* the trace's absolute path, once it is open */
    uint64_t trace_file[2];            /* its device and inode */
    _Atomic uint32_t state, sequence;  /* enum page_state; number of the last report */
    _Atomic int32_t exit_code;         /* status given to exit; -1 unknown */
    _Atomic uint32_t signal_installed; /* the signal that asks for a report; 0: none */
    uint32_t config_count;
    struct page_config config[PAGE_CONFIGS];
    char coverage_note[256]; /* why coverage is partial, or empty */
    char hook_order[128];    /* libraries that hook allocation, in the order of calls; or empty */
    uint64_t group;          /* of processes (group.h); 0: of none */
    struct page_own own;     /* the file has zeros here */

    _Alignas(PAGE_PART) _Atomic uint32_t request; /* futex: bits of page_request; the asker sets,
                                                     the process clears */
    _Atomic uint32_t answered;                    /* futex: counts requests carried out */
    char answer[1024]; /* path of the report last written, or "error: …" */
    stat_value need_bytes,
        need_row;          /* need.h: what the process lacks on the device of a row; 0: nothing */
    _Atomic uint32_t gave; /* counts begins and ends of giving memory to others */
    stat_value need_group; /* only processes of this group help; 0: all */

    stat_value coverage[COVERAGE_KINDS], oom_count, warnings_lost;
    struct page_thread thread[PAGE_THREADS];
    struct page_uncached others[UNCACHED_KINDS];
    struct page_oom oom[PAGE_OOMS]; /* the last ones; event n is at n % PAGE_OOMS */
    struct page_warning warning[PAGE_WARNINGS];
    struct cache_row cache[PAGE_CACHES];
    stat_value fit_least_bytes; /* least that was left of device_size_mb, plus one; 0: not known */
    stat_value ask_count;
    struct page_ask ask[PAGE_ASKS]; /* the last ones, as in oom */
    struct page_faults faults;
    struct device_stats pinned; /* of pinned memory that is served: all contexts together */
    stat_value sleep[SLEEP_NUMBERS];
};
#define PAGE_HEAD_BYTES offsetof(struct page, request)

static inline struct page_device *page_device(const struct page *page, unsigned i)
{
    uint64_t offset = page->device_offset + (uint64_t)i * page->device_stride;
    return (struct page_device *)((char *)page + offset);
}

static inline struct series *page_series(const struct page *page, unsigned i)
{
    return (struct series *)((char *)page + page->series_offset) + i;
}

static inline struct events *page_events(const struct page *page)
{
    return page->own.events;
}

#endif
