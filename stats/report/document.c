/* The document, one top-level key after the other. */
#include "stats/report/document.h"

#include "stats/report/parts.h"
#include "stats/report/value.h"

#include <stdlib.h>
#include <string.h>

static const char *const kind_names[] = {
    [REPORT_EXIT] = "exit",
    [REPORT_SIGNAL] = "signal",
    [REPORT_REQUEST] = "request",
    [REPORT_HARVEST] = "harvest",
};

static json_t *devices(const struct report_source *source)
{
    json_t *array = json_array();
    for (unsigned i = 0; i < source->row_count; i++)
        report_append(array, report_device(source, &source->rows[i]));
    return array;
}

static json_t *document(const struct report_source *source)
{
    json_t *root = json_object();
    report_put(root, "schema_version", json_string(REPORT_VERSION));
    report_put(root, "kind", json_string(kind_names[source->options->kind]));
    report_put(root, "sequence", report_number(source->page->sequence));
    report_put(root, "tool", report_string(source->page->tool));
    report_put(root, "time", report_times(source));      /* its last key begins the identity */
    report_put(root, "process", report_process(source)); /* its first keys end the identity */
    report_put(root, "config", report_config(source));
    report_put(root, "exit", report_exit(source));
    report_put(root, "coverage", report_coverage(source));
    report_put(root, "sleep", report_sleep(source));
    report_put(root, "totals", report_totals(source));
    report_put(root, "devices", devices(source));
    report_put(root, "others", report_others(source));
    report_put(root, "kinds", report_kinds(source));
    report_put(root, "host_memory_stats", report_host_memory_stats(source));
    report_put(root, "leaks", report_leaks(source));
    report_put(root, "oom_events", report_oom_events(source));
    report_put(root, "neighbour_asks", report_asks(source));
    report_put(root, "faults", report_faults(source));
    report_put(root, "warnings", report_warnings(source));
    report_put_sites(root, source);
    return root;
}

struct text {
    char *begin;
    size_t length, room;
    int failed; /* for good: jansson goes on after some errors, and the text would not be JSON */
};

static int append(const char *piece, size_t size, void *data)
{
    struct text *text = data;
    if (text->failed)
        return -1;
    if (size >= text->room - text->length) {
        size_t room = 2 * text->room + size + 16384;
        char *more = realloc(text->begin, room);
        if (more == NULL) {
            text->failed = 1;
            return -1;
        }
        text->begin = more;
        text->room = room;
    }
    memcpy(text->begin + text->length, piece, size);
    text->length += size;
    text->begin[text->length] = '\0';
    return 0;
}

/* As json_dumps. */
static char *dump(const json_t *root)
{
    struct text text = {NULL, 0, 0, 0};
    if (json_dump_callback(root, append, &text, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0 &&
        !text.failed)
        return text.begin;
    free(text.begin);
    return NULL;
}

char *report_text(const struct snapshot *snapshot, const struct report_options *options)
{
    unsigned failures = report_failures();
    struct report_source source = {
        .snapshot = snapshot, .options = options, .page = snapshot->page};
    if (report_source_begin(&source) != 0)
        return NULL;
    report_number_sites(&source);
    json_t *root = document(&source);
    char *text = dump(root);
    json_decref(root);
    if (report_failures() == failures) {
        text = report_add_events(report_add_series(text, &source), &source);
    } else {
        free(text);
        text = NULL;
    }
    report_source_end(&source);
    return text;
}
