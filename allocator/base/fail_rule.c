#include "allocator/base/fail_rule.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {"device", "stream_ordered", "pinned", "managed",
                                    "vmm",    "array",          "graph"};
#define KINDS (sizeof kinds / sizeof *kinds)

uint32_t fail_rule_kind(const char *name)
{
    for (unsigned i = 0; i < KINDS; i++)
        if (strcmp(name, kinds[i]) == 0)
            return 1u << i;
    return 0;
}

static int read_number(const char *text, uint64_t least, uint64_t *number)
{
    char *end;
    if (*text < '0' || *text > '9')
        return -1;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return errno || *end || *number < least ? -1 : 0;
}

/* `PERCENT%:SEED`, or `PERCENT%`. */
static int read_chance(struct fail_rule *rule, const char *text)
{
    char *end;
    if ((*text < '0' || *text > '9') && *text != '.')
        return -1;
    rule->chance = strtod(text, &end) / 100;
    if (*end++ != '%' || !(rule->chance > 0) || rule->chance > 1)
        return -1;
    return *end == ':' ? read_number(end + 1, 0, &rule->seed) : *end ? -1 : 0;
}

static int read_kind(struct fail_rule *rule, const char *text)
{
    uint32_t kind = fail_rule_kind(text);
    rule->kinds |= kind;
    return kind ? 0 : -1;
}

static int read_site(struct fail_rule *rule, const char *text)
{
    if (!*text || *rule->site)
        return -1;
    memcpy(rule->site, text, strlen(text) + 1); /* a part of the rule, which is as long */
    return 0;
}

static int read_part(struct fail_rule *rule, const char *part, int *chooses)
{
    int is_filter = strncmp(part, "kind:", 5) == 0 || strncmp(part, "site:", 5) == 0;
    if (!is_filter && (*chooses)++)
        return -1; /* two of them contradict each other */
    if (strncmp(part, "kind:", 5) == 0)
        return read_kind(rule, part + 5);
    if (strncmp(part, "site:", 5) == 0)
        return read_site(rule, part + 5);
    if (strncmp(part, "every:", 6) == 0)
        return read_number(part + 6, 1, &rule->every);
    if (strncmp(part, "p:", 2) == 0)
        return read_chance(rule, part + 2);
    return read_number(part, 0, &rule->nth);
}

int fail_rule_read(struct fail_rule *rule, const char *text)
{
    struct fail_rule read = {0};
    char parts[FAIL_RULE_TEXT], *rest, *part;
    size_t length = strlen(text);
    int chooses = 0, bracket = *text == '[';
    if (strcmp(text, "off") == 0) {
        *rule = read;
        return 0;
    }
    if (length >= sizeof parts || (bracket && (length < 3 || text[length - 1] != ']')))
        return -1;
    memcpy(read.text, text, length + 1);
    memcpy(parts, text + bracket, length + 1 - (size_t)bracket);
    if (bracket)
        parts[length - 2] = 0;
    for (part = strtok_r(parts, ",", &rest); part; part = strtok_r(NULL, ",", &rest))
        if (read_part(&read, part, &chooses))
            return -1;
    if (!chooses)
        read.every = 1;
    if (!read.kinds)
        read.kinds = UINT32_MAX;
    *rule = read;
    return 0;
}

/* A number from 0 up to 1 that looks random (splitmix64). */
static double drawn(uint64_t seed, uint64_t number)
{
    uint64_t value = seed + number * UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((value ^ value >> 31) >> 11) / (double)(UINT64_C(1) << 53);
}

int fail_rule_refuses(const struct fail_rule *rule, uint64_t number)
{
    if (rule->every)
        return number % rule->every == 0;
    return rule->chance > 0 ? drawn(rule->seed, number) < rule->chance : number == rule->nth;
}
