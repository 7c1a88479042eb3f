/* The report on the program's faults with memory. */
#include "stats/report/parts.h"
#include "stats/report/value.h"

#include <stdio.h>
#include <string.h>

static const char *const names[FAULT_KINDS] = {
#define X(name, meaning) #name,
    FAULT_LIST(X)
#undef X
};

uint64_t report_fault_count(const struct page *page)
{
    uint64_t sum = 0;
    for (unsigned kind = 0; kind < FAULT_KINDS; kind++)
        sum += page->faults.count[kind];
    return sum;
}

/* What happened, in a sentence for people. */
static json_t *sentence(const struct page_fault *fault)
{
    const char *call = fault->call;
    char text[256];
    unsigned long long bytes = fault->bytes, past = fault->past_bytes, block = fault->block_bytes,
                       inside = fault->address - fault->block_address;
    switch (fault->kind) {
    case FAULT_double_free:
        snprintf(text, sizeof text, "%s of a block that was free already", call);
        break;
    case FAULT_interior_free:
        snprintf(text, sizeof text, "%s of an address %llu bytes inside a block of %llu bytes",
                 call, inside, block);
        break;
    case FAULT_foreign_free:
        snprintf(text, sizeof text,
                 "%s of an address that neither the cache nor the driver had given out", call);
        break;
    case FAULT_past_end:
        snprintf(text, sizeof text,
                 "%s of %llu bytes runs %llu bytes past the end of a block of %llu bytes", call,
                 bytes, past, block);
        break;
    case FAULT_after_free:
        snprintf(text, sizeof text, "%s of %llu bytes begins in memory that was freed", call,
                 bytes);
        break;
    default:
        snprintf(text, sizeof text,
                 "%llu bytes were written from byte %llu of a block of %llu bytes on", bytes,
                 inside, block);
    }
    return report_string(text);
}

static json_t *one(const struct report_source *source, const struct page_fault *fault)
{
    json_t *object = json_object();
    int has_block = fault->block_bytes != 0;
    report_put(object, "kind", json_string(names[fault->kind]));
    report_put(object, "text", sentence(fault));
    REPORT_NUMBER(object, fault, time_ns);
    report_put(object, "call", report_string_or_null(fault->call));
    report_put(object, "device", fault->device ? report_number(fault->device - 1) : json_null());
    report_put(object, "address", report_address(fault->address));
    REPORT_NUMBER(object, fault, bytes);
    REPORT_NUMBER(object, fault, past_bytes);
    report_put(object, "block_address",
               has_block ? report_address(fault->block_address) : json_null());
    report_put(object, "block_bytes", has_block ? report_number(fault->block_bytes) : json_null());
    report_put(object, "site", report_site_or_null(source, fault->site));
    report_put(object, "block_site", report_site_or_null(source, fault->block_site));
    report_put(object, "freed_site", report_site_or_null(source, fault->freed_site));
    return object;
}

json_t *report_faults(const struct report_source *source)
{
    const struct page *page = source->page;
    json_t *faults = json_object(), *counts = json_object(), *list = json_array();
#define X(name, meaning) report_put(counts, #name, report_number(page->faults.count[FAULT_##name]));
    FAULT_LIST(X)
#undef X
    for (unsigned i = 0; i < PAGE_FAULTS; i++) {
        struct page_fault fault;
        memcpy(&fault, &page->faults.fault[i], sizeof fault); /* others may write the page */
        fault.call[sizeof fault.call - 1] = '\0';
        if (fault.time_ns && fault.kind < FAULT_KINDS)
            report_append(list, one(source, &fault));
    }
    report_put(faults, "counts", counts);
    report_put(faults, "first", list);
    return faults;
}
