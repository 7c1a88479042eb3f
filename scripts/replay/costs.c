/* What calls of the driver cost: the table of allocator/base/device.h, or another from a file. The allocator decides by the
 * former either way, as it does in a program. Between two sizes the price is on the line through both, beyond the last one on the
 * line through the last two; below the first it is the first's. */
#include "scripts/replay/replay.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const call_names[CALL_KINDS] = {
#define X(name, meaning) #name,
    CALL_LIST(X)
#undef X
};

#define COST_MOST UINT64_C(999999999999999) /* ns a call, as far as a file can name them */

static const struct measured {
    enum call_kind call;
    uint64_t bytes, ns;
} measured[] = {
    /* where the price depends on the size */
    {CALL_alloc, 256, 49192},      {CALL_alloc, 64 << 10, 47927},  {CALL_alloc, MIB, 40478},
    {CALL_alloc, 20 * MIB, 32979}, {CALL_alloc, 256 * MIB, 86052}, {CALL_alloc, 1024 * MIB, 276244},
    {CALL_free, 256, 39881},       {CALL_free, 64 << 10, 39074},   {CALL_free, MIB, 33937},
    {CALL_free, 20 * MIB, 37586},  {CALL_free, 256 * MIB, 193678}, {CALL_free, 1024 * MIB, 664721},
};

/* NULL, or what is wrong with this price. Sizes of a call must rise. */
static const char *add(struct costs *costs, enum call_kind call, uint64_t bytes, uint64_t ns)
{
    struct cost_line *line = &costs->line[call];
    if (line->points == COST_POINTS)
        return "too many sizes of this call";
    if (line->points && bytes <= line->bytes[line->points - 1])
        return "the sizes of a call must rise";
    line->bytes[line->points] = bytes;
    line->ns[line->points++] = ns;
    return NULL;
}

static const char *add_text(struct costs *costs, const char *text)
{
    char name[32];
    unsigned long long bytes, ns;
    int length = 0;
    if (strchr(text, '-') || /* scanf would take -5 for 2^64 - 5 */
        sscanf(text, "%31[a-z_],%18llu,%15llu %n", name, &bytes, &ns, &length) != 3 || text[length])
        return "not call,bytes,ns";
    for (unsigned call = 0; call < CALL_KINDS; call++)
        if (!strcmp(name, call_names[call]))
            return add(costs, (enum call_kind)call, bytes, ns);
    return "no such call";
}

/* A path as it may be shown on a terminal. */
static const char *shown(const char *path)
{
    static char text[PATH_MAX];
    size_t i = 0;
    for (; path[i] && i < sizeof text - 1; i++)
        text[i] = (unsigned char)path[i] < ' ' || path[i] == 0x7f ? '?' : path[i];
    text[i] = 0;
    return text;
}

static int read_lines(struct costs *costs, FILE *file, const char *path)
{
    char text[256];
    for (unsigned line = 1; fgets(text, sizeof text, file); line++) {
        const char *begin = text + (line == 1 && !strncmp(text, "\xef\xbb\xbf", 3) ? 3 : 0);
        if (line == 1 && !strncmp(begin, "call,bytes,ns", 13) && strcspn(begin, "\r\n") == 13)
            continue;
        if (begin[strspn(begin, " \t\r\n")] == 0)
            continue;
        const char *problem = add_text(costs, begin);
        if (!problem)
            continue;
        fprintf(stderr, "cachalot: %s: line %u: %s; the calls are", shown(path), line, problem);
        for (unsigned call = 0; call < CALL_KINDS; call++)
            fprintf(stderr, "%s %s", call ? "," : "", call_names[call]);
        fprintf(stderr, "\n");
        return -1;
    }
    const char *problem = ferror(file) ? strerror(errno) : NULL;
    for (unsigned call = 0, points = 0; call < CALL_KINDS && !problem; call++)
        if (!(points += costs->line[call].points) && call == CALL_KINDS - 1)
            problem =
                "there is no price in it: lines call,bytes,ns, as `--costs default` prints them";
    if (problem)
        fprintf(stderr, "cachalot: %s: %s\n", shown(path), problem);
    return problem ? -1 : 0;
}

static void add_default(struct costs *costs)
{
    const struct device_costs *device = &device_costs;
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++)
        add(costs, measured[i].call, measured[i].bytes, measured[i].ns);
    add(costs, CALL_event_record, 0, device->event);
    add(costs, CALL_chunk_create, 0, device->create);
    add(costs, CALL_chunk_map, 0, device->map);
    add(costs, CALL_chunk_allow, 0, device->access);
    add(costs, CALL_chunk_unmap, 0, device->unmap);
    add(costs, CALL_chunk_release, 0, device->release);
}

int costs_read(struct costs *costs, const char *path)
{
    memset(costs, 0, sizeof *costs);
    if (!path) {
        add_default(costs);
        return 0;
    }
    FILE *file = fopen(path, "re");
    if (!file) {
        fprintf(stderr, "cachalot: %s: %s\n", shown(path), strerror(errno));
        return -1;
    }
    int code = read_lines(costs, file, path);
    fclose(file);
    return code;
}

void costs_print(const struct costs *costs)
{
    printf("call,bytes,ns\n");
    for (unsigned call = 0; call < CALL_KINDS; call++)
        for (unsigned i = 0; i < costs->line[call].points; i++)
            printf("%s,%llu,%llu\n", call_names[call],
                   (unsigned long long)costs->line[call].bytes[i],
                   (unsigned long long)costs->line[call].ns[i]);
}

uint64_t costs_of(const struct costs *costs, enum call_kind call, uint64_t bytes)
{
    const struct cost_line *line = &costs->line[call];
    unsigned i = 1;
    if (line->points == 0)
        return 0;
    if (line->points == 1 || bytes <= line->bytes[0])
        return line->ns[0];
    while (i + 1 < line->points && bytes > line->bytes[i])
        i++;
    double share =
        (double)(bytes - line->bytes[i - 1]) / (double)(line->bytes[i] - line->bytes[i - 1]);
    double ns = (double)line->ns[i - 1] + share * ((double)line->ns[i] - (double)line->ns[i - 1]);
    if (ns > COST_MOST)
        return COST_MOST;
    return ns > 0 ? (uint64_t)(ns + 0.5) : 0;
}
