/* The records that the live page is made of (see page_layout.h). */
#ifndef CACHALOT_STATS_PAGE_PAGE_PARTS_H
#define CACHALOT_STATS_PAGE_PAGE_PARTS_H

#include "stats/page/page_lists.h"
#include "stats/counters/stats.h"

struct page_other {
    stat_value bytes, peak_bytes, allocated, freed; /* the last two count calls */
};

struct page_warning {
    stat_value count; /* 0: slot free; WARNING_BEGUN: its text is being written */
    char text[248];
};

struct page_oom {
    stat_value time_ns; /* since the process's start of service */
    uint64_t device, requested_bytes, allocated_bytes, active_bytes, reserved_bytes, reusable_bytes;
    uint64_t largest_allocatable_bytes, device_free_bytes, memory_limit_bytes, native_would_fit;
    uint64_t site; /* that asked, + 1 */
};

struct page_config {
    char name[32], value[64];
    char source[32]; /* default, CACHALOT_CONF, PYTORCH_ALLOC_CONF … */
};

/* One number, found from the page's begin. With a stride it is one of each device's row, that
 * far apart. With parts it is the sum of that many numbers, part_stride apart. "cache.…": to be
 * added to a device's own numbers where "cache.device" of the same part is its row plus one
 * (cache_row.h says which). */
struct page_field {
    char name[56]; /* dotted, e.g. "device.allocated_bytes.allocated.small_pool" */
    uint32_t offset, stride, parts, part_stride;
    char unit[8]; /* count, bytes, ns, text, bool */
};

/* What a thread counts alone, without an atomic operation. Row 0 is shared by all that have none of
 * their own, with one. */
struct page_thread {
    _Alignas(64) stat_value submissions[SUBMISSION_KINDS];
};

#define PAGE_THREADS 64
#define PAGE_CACHES 128 /* threads that allocate alone; all others take the lock */
#define PAGE_WARNINGS 32
#define WARNING_BEGUN (UINT64_C(1) << 63)
#define PAGE_OOMS 16
#define PAGE_CONFIGS 24
#define PAGE_DEVICES 1024 /* most rows */

struct page_device {
    char name[96], uuid[48]; /* uuid "GPU-xxxxxxxx-…" */
    uint64_t ordinal, total_bytes;
    stat_value used; /* 1 once a context of it was served */
    struct device_stats stats;
};

#endif
