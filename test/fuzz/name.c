/* Patterns of file names, with values from outside: what comes of them lies where the pattern says,
 * and no value leads out of its folder. Input: pattern, then what each variable holds, then the
 * host's name, with zeros between. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "stats/page/page.h"
#include "stats/output/path_pattern.h"
#include "stats/output/report_file.h"

static const char *value;

static const char *lookup(const char *name)
{
    HOLDS(name[0]);
    return value;
}

/* How many folders `path` leads up. */
static int steps_up(const char *path)
{
    int steps = 0;
    for (const char *at = path; (at = strstr(at, "..")); at += 2)
        steps += (at == path || at[-1] == '/') && (at[2] == '/' || !at[2]);
    return steps;
}

static int slashes(const char *text)
{
    int count = 0;
    for (; *text; text++)
        count += *text == '/';
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct page page;
    char path[1024], name[1280];
    const char *problem = NULL;
    char *text = calloc(size + 3, 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    const char *pattern = text;
    value = pattern + strlen(pattern) + 1;
    if (value > text + size)
        value = text + size;
    const char *host = value + strlen(value) + (value < text + size);
    strncpy(page.hostname, host, sizeof page.hostname - 1);
    strncpy(page.rank, value, sizeof page.rank - 1);
    strncpy(page.program, host, sizeof page.program - 1);
    memcpy(page.cwd, "/start/here", 12);
    if (report_expand(&page, pattern, lookup, path, sizeof path, &problem) == 0) {
        const char *folder = pattern[0] && pattern[0] == '/' ? "/" : "/start/here/";
        HOLDS(!problem && !strncmp(path, folder, strlen(folder)));
        HOLDS(steps_up(path) <= steps_up(pattern));
        HOLDS(slashes(path) <= slashes(pattern) + (pattern[0] == '/' ? 0 : 3));
        strcpy(page.output, path);
        const struct report_options options = {.kind = REPORT_EXIT};
        for (unsigned attempt = 0; attempt < 3; attempt++)
            if (report_file_name(&page, &options, attempt, name, sizeof name) == 0)
                HOLDS(steps_up(name) <= steps_up(pattern));
    } else {
        HOLDS(problem && problem[0]);
    }
    free(text);
    return 0;
}
