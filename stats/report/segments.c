/* The report on segments: their blocks, in the order of their addresses. */
#include "stats/report/parts.h"
#include "stats/report/value.h"

static const char *const state_names[] = {"allocated", "pending", "reusable"};

static json_t *block(const struct report_source *source, const struct snapshot_block *from)
{
    json_t *object = json_object();
    report_put(object, "address", report_address(from->address));
    REPORT_NUMBER(object, from, size_bytes);
    REPORT_NUMBER(object, from, requested_bytes);
    report_put(object, "state", json_string(state_names[from->state % 3]));
    if (report_sites_are_exact(source))
        report_put(object, "site", report_site_or_null(source, from->site));
    return object;
}

/* The segment that begins with blocks[i]; returns the index after its last block. */
static size_t segment(json_t *segments, const struct report_source *source, size_t i)
{
    const struct snapshot *snapshot = source->snapshot;
    const struct snapshot_block *first = &snapshot->blocks[i];
    json_t *object = json_object(), *blocks = json_array();
    uint64_t allocated = 0;
    for (; i < snapshot->block_count; i++) {
        const struct snapshot_block *next = &snapshot->blocks[i];
        if (next->segment_address != first->segment_address || next->device != first->device ||
            next->kind != first->kind)
            break;
        allocated += next->state == SNAPSHOT_ALLOCATED ? next->size_bytes : 0;
        report_append(blocks, block(source, next));
    }
    report_put(object, "address", report_address(first->segment_address));
    report_put(object, "total_bytes", report_number(first->segment_bytes));
    const char *pool = first->pool == SMALL_POOL ? "small_pool" : "large_pool";
    report_put(object, "pool", json_string(pool));
    report_put(object, "mapped", json_boolean(first->mapped));
    report_put(object, "allocated_bytes", report_number(allocated));
    report_put(object, "blocks", blocks);
    report_append(segments, object);
    return i;
}

json_t *report_segments(const struct report_source *source, uint64_t device)
{
    const struct snapshot *snapshot = source->snapshot;
    if (!snapshot->with_segments || snapshot->blocks == NULL)
        return json_null();
    json_t *segments = json_array();
    for (size_t i = 0; i < snapshot->block_count;) {
        if (snapshot->blocks[i].device == device && !snapshot->blocks[i].kind)
            i = segment(segments, source, i);
        else
            i++;
    }
    return segments;
}
