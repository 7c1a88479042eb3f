/* What the program of a page is called. The executable's name says nothing of a Python program. */
#include "stats/page/program.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static int begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* The argument after `at`; NULL: there is none. */
static const char *following(const struct page *page, const char *at)
{
    const char *next = at + strlen(at) + 1;
    return next < page->argv + page->argv_bytes ? next : NULL;
}

/* python, python3, python3.13t, pypy3.10 … */
static int is_python(const char *name)
{
    size_t prefix = begins(name, "python") ? 6 : begins(name, "pypy") ? 4 : 0;
    return prefix != 0 && strchr("0123456789", name[prefix]) != NULL;
}

/* The last part of a script's path; for DIRECTORY/__main__.py that of the directory. */
static void name_script(const char *path, char *name, size_t size)
{
    static const char whole[] = "__main__.py";
    size_t length = strlen(path);
    if (strcmp(last_part(path), whole) == 0 && length >= sizeof whole)
        length -= sizeof whole;
    while (length > 1 && path[length - 1] == '/')
        length--;
    size_t begin = length;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    if (length > begin && path[begin] != '.')
        snprintf(name, size, "%.*s", (int)(length - begin), path + begin);
}

/* What the letters of one option of Python say: c, m, one that takes a value, or none of them (0). *rest
 * is what follows the letter. */
static char letter_of(const char *option, const char **rest)
{
    const char *at = option + 1 + strcspn(option + 1, "cmWXQ");
    *rest = *at != '\0' ? at + 1 : at;
    return *at;
}

/* Names a Python program by its script, by its module, or python-c. `argument` is the first after the
 * interpreter. Leaves the name where Python reads its program from a terminal or a pipe. */
static void name_python(const struct page *page, const char *argument, char *name, size_t size)
{
    for (; argument != NULL; argument = argument != NULL ? following(page, argument) : NULL) {
        const char *rest;
        if (argument[0] != '-') {
            name_script(argument, name, size);
            return;
        }
        if (argument[1] == '\0')
            return;
        if (argument[1] == '-') {
            if (strcmp(argument, "--check-hash-based-pycs") == 0)
                argument = following(page, argument);
            continue;
        }
        char letter = letter_of(argument, &rest);
        if (letter == 'c')
            snprintf(name, size, "python-c");
        if (letter == 'm' && *rest == '\0')
            rest = following(page, argument);
        if (letter == 'm' && rest != NULL)
            snprintf(name, size, "%s", rest);
        if (letter == 'c' || letter == 'm')
            return;
        if (letter != '\0' && *rest == '\0')
            argument = following(page, argument);
    }
}

/* The argument that names the interpreter: the first, unless the dynamic loader was started to run
 * it. */
static const char *interpreter(const struct page *page)
{
    const char *argument = page->argv;
    while (argument != NULL && strcmp(last_part(argument), program_invocation_short_name) != 0)
        argument = following(page, argument);
    return argument != NULL ? argument : page->argv;
}

void page_name_program(struct page *page)
{
    static const char deleted[] = " (deleted)";
    char name[sizeof page->program];
    snprintf(name, sizeof name, "%.*s", (int)sizeof name - 1, last_part(page->exe));
    char *suffix = strstr(name, deleted);
    if (suffix != NULL)
        *suffix = '\0';
    if (is_python(name) && page->argv_bytes != 0)
        name_python(page, following(page, interpreter(page)), name, sizeof name);
    memcpy(page->program, name, sizeof name);
}
