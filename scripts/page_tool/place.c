/* Where the report of a dead process goes. The page names a path, and any process of this user, or the
 * root of a container that shares the folder, may have written the page. */
#include "scripts/page_tool/page_tool.h"

#include "stats/output/report_file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The part of `path` below `folder`, or NULL if it is not below it. No part of it leads up, and links
 * are followed. */
static const char *below(const char *path, const char *folder)
{
    char real[PATH_MAX], copy[PATH_MAX], place[PATH_MAX];
    size_t length = strlen(folder);
    if (strncmp(path, folder, length) != 0 || path[length] != '/' ||
        snprintf(copy, sizeof copy, "%s", path) >= PATH_MAX)
        return NULL;
    for (const char *part = path; (part = strstr(part, "/..")) != NULL; part += 3)
        if (part[3] == '/' || part[3] == '\0')
            return NULL;
    if (realpath(folder, real) == NULL)
        return errno == ENOENT ? path + length + 1 : NULL;
    do /* the deepest folder that is there */
        *strrchr(copy, '/') = '\0';
    while (strlen(copy) > length && realpath(copy, place) == NULL && errno == ENOENT);
    size_t within = strlen(real);
    return realpath(copy, place) != NULL && strncmp(place, real, within) == 0 &&
                   (place[within] == '/' || place[within] == '\0')
               ? path + length + 1
               : NULL;
}

/* Whether a file of that name is nothing but a report: no shell, editor or service reads it as its
 * own. */
static int is_harmless(const char *name)
{
    size_t length = strlen(name);
    return name[0] != '.' && strstr(name, "/.") == NULL && length > 5 &&
           strcmp(name + length - 5, ".json") == 0;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

int tool_place(const struct page *page, const struct tool_options *options,
               const struct report_options *report, char *path, size_t size)
{
    char wanted[PATH_MAX], here[PATH_MAX], own[48];
    int error = report_file_name(page, report, 0, wanted, sizeof wanted);
    if (error != 0)
        return error;
    const char *name =
        getcwd(here, sizeof here) ? below(wanted, strcmp(here, "/") ? here : "") : NULL;
    if ((name != NULL && is_harmless(name)) ||
        (options->below != NULL && below(wanted, options->below) != NULL))
        return snprintf(path, size, "%s", wanted) < (int)size ? 0 : -ENAMETOOLONG;
    snprintf(own, sizeof own, "cachalot.%llu.json", (unsigned long long)page->pid);
    name = is_harmless(last_part(wanted)) ? last_part(wanted) : own;
    int beside = access(".", W_OK | X_OK) != 0;
    int folder = beside ? (int)(last_part(options->path) - options->path) : 0;
    return snprintf(path, size, "%.*s%s%s%s", folder, options->path, beside ? "" : here,
                    beside ? "" : "/", name) < (int)size
               ? 0
               : -ENAMETOOLONG;
}
