#include "stats/report/value.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST_INTEGER ((UINT64_C(1) << 53) - 1)

static atomic_uint failures; /* only rises: of two reports at once both fail, which is safe */

void report_put(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        atomic_fetch_add(&failures, 1);
}

void report_append(json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) != 0)
        atomic_fetch_add(&failures, 1);
}

unsigned report_failures(void)
{
    return atomic_load(&failures);
}

json_t *report_number(uint64_t value)
{
    return json_integer((json_int_t)(value < LARGEST_INTEGER ? value : LARGEST_INTEGER));
}

json_t *report_known(int64_t value)
{
    return value < 0 ? json_null() : report_number((uint64_t)value);
}

json_t *report_address(uint64_t address)
{
    char text[24];
    snprintf(text, sizeof text, "0x%llx", (unsigned long long)address);
    return json_string(text);
}

json_t *report_ratio(uint64_t part, uint64_t whole)
{
    if (whole == 0)
        return json_null();
    double ratio = (double)part / (double)whole;
    return json_real(ratio < 1 ? ratio : 1);
}

/* Length of the well-formed UTF-8 character at `text`, or 0. */
static size_t character(const unsigned char *text)
{
    if (text[0] < 0x80)
        return 1;
    size_t length = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    if (text[0] < 0xc2 || text[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    /* The second byte tells overlong forms, surrogates and what lies past U+10FFFF. */
    if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
        (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f))
        return 0;
    return length;
}

json_t *report_string(const char *text)
{
    static const char replacement[] = "\xef\xbf\xbd";
    size_t length = strlen(text), to = 0;
    char *valid = malloc(3 * length + 1);
    if (valid == NULL)
        return NULL;
    for (size_t from = 0; from < length;) {
        size_t n = character((const unsigned char *)text + from);
        memcpy(valid + to, n ? text + from : replacement, n ? n : 3);
        to += n ? n : 3;
        from += n ? n : 1;
    }
    json_t *value = json_stringn(valid, to);
    free(valid);
    return value;
}

json_t *report_string_or_null(const char *text)
{
    return text == NULL || text[0] == '\0' ? json_null() : report_string(text);
}

struct date {
    unsigned long long year;
    unsigned month, day;
};

/* Days since 1970-01-01 in the Gregorian calendar. gmtime_r takes a lock and may read files. */
static struct date date_of(uint64_t days)
{
    uint64_t shifted = days + 719468; /* since 0000-03-01: a leap day ends its year */
    uint64_t era = shifted / 146097, day = shifted % 146097;
    uint64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    unsigned in_year = (unsigned)(day - (365 * year + year / 4 - year / 100));
    unsigned month = (5 * in_year + 2) / 153;
    return (struct date){
        .year = year + era * 400 + (month >= 10),
        .month = month < 10 ? month + 3 : month - 9,
        .day = in_year - (153 * month + 2) / 5 + 1,
    };
}

void report_format_time(uint64_t realtime_ns, int iso, char *buffer, size_t size)
{
    uint64_t seconds = realtime_ns / 1000000000U;
    struct date date = date_of(seconds / 86400);
    unsigned hour = (unsigned)(seconds / 3600 % 24), minute = (unsigned)(seconds / 60 % 60);
    unsigned second = (unsigned)(seconds % 60), ms = (unsigned)(realtime_ns / 1000000 % 1000);
    if (iso)
        snprintf(buffer, size, "%04llu-%02u-%02uT%02u:%02u:%02u.%03uZ", date.year, date.month,
                 date.day, hour, minute, second, ms);
    else
        snprintf(buffer, size, "%04llu%02u%02uT%02u%02u%02uZ", date.year, date.month, date.day,
                 hour, minute, second);
}

json_t *report_time(uint64_t realtime_ns)
{
    char text[48];
    report_format_time(realtime_ns, 1, text, sizeof text);
    return json_string(text);
}
