/* The parts of the document: each function makes the value of one key. document.c puts the parts
 * together; the replay makes a document of its own from some of them. */
#ifndef CACHALOT_STATS_REPORT_PARTS_H
#define CACHALOT_STATS_REPORT_PARTS_H

#include <jansson.h>

#include "stats/report/source.h"

json_t *report_config(const struct report_source *source);
json_t *report_times(const struct report_source *source);
json_t *report_process(const struct report_source *source);
json_t *report_exit(const struct report_source *source);
json_t *report_coverage(const struct report_source *source);
json_t *report_sleep(const struct report_source *source);
json_t *report_totals(const struct report_source *source);
json_t *report_device(const struct report_source *source, const struct report_row *row);
json_t *report_segments(const struct report_source *source, uint64_t device);
json_t *report_others(const struct report_source *source);
json_t *report_kinds(const struct report_source *source);
json_t *report_host_memory_stats(const struct report_source *source);
json_t *report_leaks(const struct report_source *source);
json_t *report_oom_events(const struct report_source *source);
json_t *report_holders(const struct page_oom *oom);
json_t *report_asks(const struct report_source *source);
json_t *report_faults(const struct report_source *source);
uint64_t report_fault_count(const struct page *page);
json_t *report_warnings(const struct report_source *source);

/* Call sites are numbered first, then put into the document. report_site: the number, plus one, of a
 * place of the table; 0 for none. */
void report_number_sites(struct report_source *source);
void report_put_sites(json_t *root, const struct report_source *source);
int report_sites_are_exact(const struct report_source *source);
uint32_t report_site(const struct report_source *source, uint64_t place);
json_t *report_site_or_null(const struct report_source *source, uint64_t place);

/* The name of a kind of memory: as snapshot_block's `kind`. */
const char *report_kind_name(unsigned kind);

/* A difference of a damaged page may be negative; it is 0 then. */
uint64_t report_not_negative(uint64_t value);
/* Adds the key `series` to a document's text, as report_add_events does. */
char *report_add_series(char *text, const struct report_source *source);

/* Adds the key `events`, if the page has events, to a document's text. It may move the text; NULL:
 * there was no memory for it, and the text is freed. */
char *report_add_events(char *text, const struct report_source *source);

#endif
