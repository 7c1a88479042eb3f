/* JSON values of the report: numbers below 2^53, ratios, texts made valid UTF-8, times; null for
 * unknown. */
#ifndef CACHALOT_STATS_REPORT_VALUE_H
#define CACHALOT_STATS_REPORT_VALUE_H

#include <jansson.h>
#include <stdint.h>

/* Put a new value into an object or at an array's end, and take its reference. A NULL value found no
 * memory: report_failures counts it, so that no incomplete document is written. */
void report_put(json_t *object, const char *key, json_t *value);
void report_append(json_t *array, json_t *value);

/* The values that found no memory in this process. */
unsigned report_failures(void);

json_t *report_number(uint64_t value);
json_t *report_string(const char *text);         /* valid UTF-8, whatever `text` is */
json_t *report_string_or_null(const char *text); /* null if empty */
json_t *report_address(uint64_t address);
json_t *report_ratio(uint64_t part, uint64_t whole); /* 0 to 1; null if whole is 0 */
json_t *report_time(uint64_t realtime_ns);           /* ISO-8601, UTC, ms */
json_t *report_known(int64_t value);                 /* null if negative */

/* "20260131T235959Z" or, `iso`, "2026-01-31T23:59:59.123Z" */
void report_format_time(uint64_t realtime_ns, int iso, char *buffer, size_t size);

#define REPORT_NUMBER(object, record, name) report_put(object, #name, report_number((record)->name))

#endif
