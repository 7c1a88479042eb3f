/* The report on the process: config, time, process, exit, coverage. */
#include "stats/os/clock.h"
#include "stats/report/parts.h"
#include "stats/report/value.h"

#include <stdlib.h>
#include <string.h>

json_t *report_config(const struct report_source *source)
{
    const struct page *page = source->page;
    json_t *config = json_object();
    for (unsigned i = 0; i < page->config_count && i < PAGE_CONFIGS; i++) {
        json_t *name = report_string(page->config[i].name);
        json_t *option = json_object();
        report_put(option, "value", report_string(page->config[i].value));
        report_put(option, "source", report_string(page->config[i].source));
        report_put(config, name ? json_string_value(name) : "", option);
        json_decref(name);
    }
    return config;
}

json_t *report_times(const struct report_source *source)
{
    const struct page *page = source->page;
    json_t *time = json_object();
    report_put(time, "written", report_time(clock_ns(CLOCK_REALTIME)));
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    /* The time at which a harvested process ended is not known. */
    if (source->options->kind == REPORT_HARVEST || now < page->start_monotonic_ns)
        report_put(time, "uptime_ns", json_null());
    else
        report_put(time, "uptime_ns", report_number(now - page->start_monotonic_ns));
    report_put(time, "start", report_time(page->start_realtime_ns)); /* last: report_identity.h */
    return time;
}

static json_t *arguments(const struct page *page)
{
    if (page->argv_bytes == 0)
        return json_null();
    json_t *array = json_array();
    const char *end = page->argv + page->argv_bytes;
    for (const char *text = page->argv; text < end; text += strlen(text) + 1)
        report_append(array, report_string(text));
    return array;
}

/* A rank as a number where the launcher gave a number, else as text. */
static json_t *rank(const char *text)
{
    size_t length = strlen(text);
    if (length == 0 || length > 9 || strspn(text, "0123456789") != length)
        return report_string_or_null(text);
    return json_integer(strtol(text, NULL, 10));
}

json_t *report_process(const struct report_source *source)
{
    const struct page *page = source->page;
    json_t *process = json_object();
    REPORT_NUMBER(process, page, pid);
    REPORT_NUMBER(process, page, start_ticks);
    REPORT_NUMBER(process, page, generation);
    REPORT_NUMBER(process, page, pid_namespace);
    report_put(process, "hostname", report_string_or_null(page->hostname));
    report_put(process, "session", report_string_or_null(page->session));
    REPORT_NUMBER(process, page, uid); /* after what identifies the process: report_identity.h */
    report_put(process, "exe", report_string_or_null(page->exe));
    report_put(process, "program", report_string_or_null(page->program));
    report_put(process, "argv", arguments(page));
    report_put(process, "argv_note",
               page->argv_bytes ? json_string("CACHALOT_REDACT=argv leaves the arguments out")
                                : json_null());
    report_put(process, "cwd", report_string_or_null(page->cwd));
    report_put(process, "rank", rank(page->rank));
    report_put(process, "rank_source", report_string_or_null(page->rank_source));
    uint32_t signal = page->signal_installed;
    report_put(process, "report_signal", signal ? report_number(signal) : json_null());
    return process;
}

json_t *report_exit(const struct report_source *source)
{
    const struct report_options *options = source->options;
    const char *reason = options->exit_reason ? options->exit_reason : "unknown";
    int unknown = strcmp(reason, "running") == 0 || strcmp(reason, "unknown") == 0;
    int clean = options->kind == REPORT_EXIT && strcmp(reason, "exit") == 0;
    json_t *object = json_object();
    report_put(object, "reason", report_string(reason));
    report_put(object, "code", report_known(options->exit_code));
    report_put(object, "signal", report_known(options->exit_signal));
    report_put(object, "clean", unknown ? json_null() : json_boolean(clean));
    return object;
}

static const char *coverage_status(const struct page *page)
{
    uint64_t seen = page->coverage[COVERAGE_dlsym_lookups] +
                    page->coverage[COVERAGE_proc_address_lookups] +
                    page->coverage[COVERAGE_linked_calls];
    if (page->coverage[COVERAGE_init_calls] == 0)
        return seen == 0 ? "none" : "partial";
    int whole = page->coverage[COVERAGE_unseen_frees] == 0 && page->coverage_note[0] == '\0';
    return whole ? "full" : "partial";
}

static json_t *coverage_reasons(const struct page *page)
{
    json_t *reasons = json_array();
    if (page->coverage[COVERAGE_init_calls] == 0)
        report_append(reasons, json_string("no initialisation of CUDA came through cachalot"));
    uint64_t unseen = page->coverage[COVERAGE_unseen_frees];
    if (unseen != 0)
        report_append(reasons, json_sprintf("%llu driver allocations were freed through cachalot "
                                            "that it had not seen made",
                                            (unsigned long long)unseen));
    if (page->coverage_note[0] != '\0')
        report_append(reasons, report_string(page->coverage_note));
    return reasons;
}

static uint64_t submissions_of(const struct page *page, enum submission_kind kind)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < PAGE_THREADS; i++)
        sum += page->thread[i].submissions[kind];
    return sum;
}

json_t *report_coverage(const struct report_source *source)
{
    const struct page *page = source->page;
    json_t *coverage = json_object(), *counters = json_object(), *submissions = json_object();
#define X(name, meaning)                                                                           \
    report_put(counters, #name, report_number(page->coverage[COVERAGE_##name]));
    COVERAGE_LIST(X)
#undef X
#define X(name, meaning)                                                                           \
    report_put(submissions, #name, report_number(submissions_of(page, SUBMISSION_##name)));
    SUBMISSION_LIST(X)
#undef X
    uint64_t least = page->fit_least_bytes;
    if (least)
        report_put(coverage, "fit_least_free_bytes", report_number(least - 1));
    report_put(coverage, "status", json_string(coverage_status(page)));
    report_put(coverage, "reasons", coverage_reasons(page));
    report_put(coverage, "hook_order",
               page->hook_order[0] ? report_string(page->hook_order) : json_null());
    report_put(coverage, "counters", counters);
    report_put(coverage, "submissions", submissions);
    return coverage;
}

static const char *const sleep_states[] = {"awake", "falling asleep", "asleep", "waking"};

json_t *report_sleep(const struct report_source *source)
{
    const stat_value *numbers = source->page->sleep;
    uint64_t state = numbers[SLEEP_state];
    json_t *sleep = json_object();
#define X(name, unit, meaning) report_put(sleep, #name, report_number(numbers[SLEEP_##name]));
    SLEEP_LIST(X)
#undef X
    report_put(sleep, "state", json_string(sleep_states[state < 4 ? state : 0]));
    return sleep;
}
