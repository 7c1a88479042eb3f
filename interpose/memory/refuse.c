#include "interpose/memory/refuse.h"

#include <stdio.h>
#include <string.h>

#include "interpose/call_sites/stack.h"
#include "interpose/context/capture.h"
#include "interpose/memory/oom.h"
#include "interpose/resolve/real_driver.h"
#include "stats/events/sites.h"

static struct WIPED refusing {
    _Atomic uint64_t requests;
} refusing;
static const struct wiped wiped WIPED_ENTRY = {&refusing, sizeof refusing};

static const char *const kinds[UNCACHED_KINDS] = {
#define X(name, kind) #kind,
    UNCACHED_LIST(X)
#undef X
};

/* The current context, if the cache has served it; else its first request would be this one. */
static struct context *served(void)
{
    CUcontext handle = NULL;
    return real()->cuCtxGetCurrent(&handle) == CUDA_SUCCESS && handle ? context_noted(handle)
                                                                      : NULL;
}

/* Is `text` in the site's Python lines, or in `module+0xoffset` of a frame, as reports show it? */
static int site_has(const struct sites *sites, uint32_t place, const char *text)
{
    const uint64_t offset_mask = (UINT64_C(1) << 48) - 1;
    char frame[320];
    if (!place || place > SITES)
        return 0;
    const struct site *site = &sites->site[place - 1];
    if (!atomic_load_explicit(&site->ready, memory_order_acquire))
        return 0;
    if (strstr(site->python, text))
        return 1;
    for (uint64_t i = 0; i < site->frames && i < SITE_FRAMES; i++) {
        uint64_t module = site->frame[i] >> 48;
        const char *path = module && module <= SITE_MODULES ? sites->module[module - 1].path : "";
        snprintf(frame, sizeof frame, "%s+0x%llx", path,
                 (unsigned long long)(site->frame[i] & offset_mask));
        if (strstr(frame, text))
            return 1;
    }
    return 0;
}

/* The place of the request's call site. memory_alloc has noted that of a block of the cache. */
static uint32_t site_of(enum uncached_kind kind)
{
    if (kind == UNCACHED_device)
        return site_place(domain_asked_where());
    process_inside++;
    uint32_t place = call_sites_now(1U + kind, SITE_DEVICES);
    process_inside--;
    return place;
}

int refuse_request(enum uncached_kind kind, uint64_t bytes)
{
    const struct fail_rule *rule = &process.config.options.fail_alloc;
    if (!*rule->text || !process_serving() || process_inside || !bytes || capture_active() ||
        !(rule->kinds & fail_rule_kind(kinds[kind])))
        return 0;
    if (*rule->site && !(process.sites && site_has(process.sites, site_of(kind), rule->site)))
        return 0;
    uint64_t number = atomic_fetch_add(&refusing.requests, 1) + 1;
    process_count(COVERAGE_fail_alloc_requests);
    if (!fail_rule_refuses(rule, number))
        return 0;
    process_count(COVERAGE_fail_alloc_refused);
    const struct context *context = served();
    if (context) {
        process_inside++;
        allocator_refused(context->allocator, bytes);
        process_inside--;
    }
    oom_note_refused(context, bytes, number, kind);
    return 1;
}
