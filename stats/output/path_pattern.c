/* Expanding an output pattern into a path. Values from outside lose what could leave the directory
 * before they become part of the path. */
#include "stats/output/path_pattern.h"

#include "stats/report/value.h"

#include <stdio.h>
#include <string.h>

#define VALUE_BYTES 64      /* the most that one value adds */
#define NAME_BYTES 255      /* what file systems allow */
#define FILE_NAME_BYTES 200 /* of those: room for .PID.N and the like */

struct expansion {
    char *path;
    size_t size, length;
    const struct page *page;
    const char *(*lookup)(const char *);
    const char *problem;
};

static void add(struct expansion *to, const char *text, size_t length)
{
    if (length >= to->size - to->length) {
        to->problem = "the output path is too long";
        return;
    }
    memcpy(to->path + to->length, text, length);
    to->length += length;
    to->path[to->length] = '\0';
}

/* Adds a character of the path. A percent sign is doubled: the writing of the report halves it. */
static void add_character(struct expansion *to, char c)
{
    if ((unsigned char)c < 0x20 || c == 0x7f)
        c = '_';
    add(to, "%%", c == '%' ? 1 : 0);
    add(to, &c, 1);
}

static void add_value(struct expansion *to, const char *value)
{
    if (value == NULL || value[0] == '\0')
        value = "none";
    for (size_t i = 0; value[i] != '\0' && i < VALUE_BYTES; i++)
        add_character(to, value[i] == '/' || (i == 0 && value[i] == '.') ? '_' : value[i]);
}

/* {VAR} after %q; returns what follows it. */
static const char *add_variable(struct expansion *to, const char *text)
{
    char name[64];
    const char *end = text[0] == '{' ? strchr(text, '}') : NULL;
    size_t length = end != NULL ? (size_t)(end - text - 1) : 0;
    if (length == 0 || length >= sizeof name) {
        to->problem = "%q is to be followed by {VARIABLE}";
        return text;
    }
    memcpy(name, text + 1, length);
    name[length] = '\0';
    add_value(to, to->lookup != NULL ? to->lookup(name) : NULL);
    return end + 1;
}

/* The sequence that begins after a percent sign; returns what follows it. */
static const char *add_sequence(struct expansion *to, const char *text)
{
    char number[32];
    switch (*text) {
    case 'p':
        snprintf(number, sizeof number, "%llu", (unsigned long long)to->page->pid);
        add_value(to, number);
        return text + 1;
    case 'h':
        add_value(to, to->page->hostname);
        return text + 1;
    case 'e':
        add_value(to, to->page->program);
        return text + 1;
    case 'r':
        add_value(to, to->page->rank);
        return text + 1;
    case 't':
        report_format_time(to->page->start_realtime_ns, 0, number, sizeof number);
        add_value(to, number);
        return text + 1;
    case 'n':
        add(to, "%n", 2);
        return text + 1;
    case '%':
        add_character(to, '%');
        return text + 1;
    case 'q':
        return add_variable(to, text + 1);
    default:
        to->problem = "unknown % in the output pattern: there are %p %h %e %r %t %n %q{VAR} %%";
        return text;
    }
}

/* Adds the directory in which the process began, unchanged except for doubled percent signs. */
static void add_directory(struct expansion *to)
{
    const char *cwd = to->page->cwd;
    if (cwd[0] != '/') {
        to->problem = "the directory of the start is not known, and the output path is relative";
        return;
    }
    for (; *cwd != '\0'; cwd++)
        add(to, *cwd == '%' ? "%%" : cwd, *cwd == '%' ? 2 : 1);
    if (to->length > 0 && to->path[to->length - 1] != '/')
        add(to, "/", 1);
}

static int components_fit(const char *path)
{
    for (size_t length; *path != '\0'; path += length + (path[length] == '/')) {
        length = strcspn(path, "/");
        if (length > (path[length] == '/' ? NAME_BYTES : FILE_NAME_BYTES))
            return 0;
    }
    return 1;
}

int report_expand(const struct page *page, const char *pattern, const char *(*lookup)(const char *),
                  char *path, size_t size, const char **problem)
{
    struct expansion to = {path, size, 0, page, lookup, NULL};
    if (pattern == NULL || pattern[0] == '\0')
        pattern = "cachalot.%e.%p.json";
    path[0] = '\0';
    if (pattern[0] != '/')
        add_directory(&to);
    while (*pattern != '\0' && to.problem == NULL) {
        if (*pattern == '%')
            pattern = add_sequence(&to, pattern + 1);
        else
            add_character(&to, *pattern++);
    }
    if (to.problem == NULL && path[to.length - 1] == '/')
        to.problem = "the output path ends with a slash: it names no file";
    if (to.problem == NULL && !components_fit(path))
        to.problem = "a name in the output path is too long";
    *problem = to.problem;
    return to.problem == NULL ? 0 : -1;
}
