#include "allocator/base/fill_rule.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int read_number(const char *text, char **end, uint64_t *number)
{
    if (*text < '0' || *text > '9')
        return -1;
    errno = 0;
    *number = strtoull(text, end, 10);
    return errno ? -1 : 0;
}

static int read_kind(struct fill_rule *rule, const char *text)
{
    char *end = NULL;
    if (strncmp(text, "random:", 7) == 0) {
        rule->kind = FILL_RANDOM;
        return read_number(text + 7, &end, &rule->seed) || *end ? -1 : 0;
    }
    rule->kind = strcmp(text, "zero") == 0 ? FILL_ZERO : FILL_NAN;
    return strcmp(text, "zero") && strcmp(text, "nan") ? -1 : 0;
}

static int read_range(struct fill_rule *rule, const char *text)
{
    char *end = NULL;
    if (read_number(text, &end, &rule->first) || *end != '-' ||
        read_number(end + 1, &end, &rule->last) || *end)
        return -1;
    return rule->first && rule->first <= rule->last ? 0 : -1;
}

int fill_rule_read(struct fill_rule *rule, const char *text)
{
    struct fill_rule read = {0};
    char parts[FILL_RULE_TEXT];
    size_t length = strlen(text);
    int bracket = *text == '[';
    if (strcmp(text, "off") == 0) {
        *rule = read;
        return 0;
    }
    if (length >= sizeof parts || (bracket && text[length - 1] != ']'))
        return -1;
    memcpy(read.text, text, length + 1);
    memcpy(parts, text + bracket, length + 1 - (size_t)bracket);
    if (bracket)
        parts[length - 2] = 0;
    char *comma = strchr(parts, ',');
    if (comma)
        *comma++ = 0;
    if (read_kind(&read, parts) || (comma && read_range(&read, comma)))
        return -1;
    *rule = read;
    return 0;
}

uint32_t fill_rule_word(const struct fill_rule *rule, uint64_t number)
{
    if (rule->last && (number < rule->first || number > rule->last))
        return 0;
    if (rule->kind != FILL_RANDOM)
        return rule->kind == FILL_NAN ? UINT32_MAX : 0;
    uint64_t value = (rule->seed + number) * UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ value >> 31) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(value >> 32) | 1; /* never 0 */
}
