/* The result as a document: the report's own parts, and what only a replay knows. */
#include "scripts/replay/replay.h"

#include <stdio.h>
#include <stdlib.h>

#include "stats/report/document.h"
#include "stats/report/parts.h"
#include "stats/report/value.h"

static json_t *trace_object(const struct replay *replay)
{
    const struct trace *read = &replay->feed.trace;
    const char *kind = replay->kind ? replay->kind : read->rmm ? "rmm" : "csv";
    kind = read->recorded ? "recorded" : kind;
    json_t *trace = json_object();
    report_put(trace, "name", report_string(replay->name));
    report_put(trace, "format", report_string(kind));
    report_put(trace, "device",
               read->device < 0 ? json_null() : report_number((uint64_t)read->device));
    report_put(trace, "recorded_peak_reserved_bytes",
               replay->recorded_reserved ? report_number(replay->recorded_reserved) : json_null());
    report_put(trace, "lines", report_number(read->line - (unsigned)read->recorded));
    REPORT_NUMBER(trace, replay, operations);
    REPORT_NUMBER(trace, replay, mallocs);
    REPORT_NUMBER(trace, replay, frees);
    REPORT_NUMBER(trace, replay, empty);
    REPORT_NUMBER(trace, replay, recorded_failures);
    report_put(trace, "failures_tried", json_boolean(replay->has_end));
    report_put(trace, "live_at_end",
               report_number(stats_current_all(replay->stats, STAT_allocation)));
    return trace;
}

static json_t *driver_object(const struct replay *replay)
{
    const struct replay_device *device = &replay->device;
    json_t *driver = json_object(), *calls = json_object();
    for (unsigned i = 0; i < CALL_KINDS; i++) {
        const struct call_sum *sum = &device->call[i];
        json_t *call = json_object();
        REPORT_NUMBER(call, sum, count);
        REPORT_NUMBER(call, sum, failed);
        REPORT_NUMBER(call, sum, bytes);
        int priced = replay->costs.line[i].points > 0;
        report_put(call, "cost_ns", priced ? report_number(sum->cost_ns) : json_null());
        report_put(calls, call_names[i], call);
    }
    uint64_t from = (replay->operations + 4) / 5;
    report_put(driver, "calls", calls);
    report_put(driver, "behind_operations", report_number(device->behind));
    report_put(driver, "cost_ns", report_number(replay_cost_since(device, 0)));
    report_put(driver, "steady_from_operation", report_number(from));
    report_put(driver, "steady_cost_ns", report_number(replay_cost_since(device, from)));
    return driver;
}

static json_t *speed_object(const struct replay *replay)
{
    double seconds = replay->ended - replay->began;
    json_t *speed = json_object();
    report_put(speed, "seconds", json_real(seconds));
    report_put(speed, "operations_per_second",
               seconds > 0 ? json_real((double)replay->operations / seconds) : json_null());
    return speed;
}

/* A replay has no clock: what was out of memory is named by the trace's operation. */
static json_t *oom_events(const struct replay *replay, const struct report_source *source)
{
    json_t *events = report_oom_events(source), *event;
    size_t i;
    json_array_foreach(events, i, event)
    {
        uint64_t number = (uint64_t)json_integer_value(json_object_get(event, "number"));
        report_put(event, "operation", report_number(replay->oom_operation[number % PAGE_OOMS]));
    }
    return events;
}

static json_t *document(const struct replay *replay, const struct report_source *source)
{
    const struct pool_stat *stat = replay->stats->stat;
    uint64_t requested = stat[STAT_requested_bytes].peak[STAT_POOLS];
    uint64_t reserved = stat[STAT_reserved_bytes].peak[STAT_POOLS];
    json_t *root = json_object(), *devices = json_array();
    report_put(root, "schema_version", json_string(REPORT_VERSION));
    report_put(root, "kind", json_string("replay"));
    report_put(root, "tool", report_string(source->page->tool));
    report_put(root, "config", report_config(source));
    report_put(root, "trace", trace_object(replay));
    report_put(root, "totals", report_totals(source));
    report_put(root, "reserved_per_requested",
               requested ? json_real((double)reserved / (double)requested) : json_null());
    report_put(root, "driver", driver_object(replay));
    report_append(devices, report_device(source, source->rows));
    report_put(root, "devices", devices);
    report_put(root, "oom_events", oom_events(replay, source));
    report_put(root, "warnings", report_warnings(source));
    report_put(root, "speed", speed_object(replay));
    return root;
}

int replay_print(struct replay *replay)
{
    static struct report_row row;
    static const struct report_options options = {.kind = REPORT_REQUEST};
    struct snapshot snapshot = {.page = replay->page};
    struct report_source source = {.snapshot = &snapshot,
                                   .options = &options,
                                   .page = replay->page,
                                   .rows = &row,
                                   .row_count = 1};
    row.device = page_device(replay->page, 0);
    row.torn = stats_copy(&row.stats, replay->stats) != 0;
    json_t *root = document(replay, &source);
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(root);
    int failed = !text || report_failures() || puts(text) < 0 || fflush(stdout);
    free(text);
    return failed ? REPLAY_FAILED : REPLAY_DONE;
}
