/* The parts of the program cachalot-page. Exit codes: 0 done, 1 failed, 2 usage, 3 no or bad
 * page. */
#ifndef CACHALOT_SCRIPTS_PAGE_TOOL_PAGE_TOOL_H
#define CACHALOT_SCRIPTS_PAGE_TOOL_PAGE_TOOL_H

#include "stats/page/page.h"
#include "stats/report/options.h"

enum tool_exit { TOOL_DONE = 0, TOOL_FAILED = 1, TOOL_USAGE = 2, TOOL_BAD_PAGE = 3 };

struct tool_options {
    const char *path, *output, *reason, *action, *below;
    int code, signal, blocks;
    double timeout; /* seconds */
};

/* page_open that complains on stderr. */
struct page *tool_open(const char *path, int *asks);

/* Whether the process of the page in file `path` lives. The kernel says so, wherever the process is;
 * where it does not, a process of another pid namespace is ELSEWHERE. page NULL: the file is no sound
 * page. */
enum tool_life { TOOL_ALIVE, TOOL_DEAD, TOOL_ELSEWHERE };
enum tool_life tool_life(const struct page *page, const char *path);

/* Where the report of a dead process goes: the path in the page if it lies below the working directory
 * or `options->below`, else that name in the working directory, or beside the page if nothing can be
 * made there. Returns 0, -ENAMETOOLONG, or -ENOENT where the page names no path. */
int tool_place(const struct page *page, const struct tool_options *options,
               const struct report_options *report, char *path, size_t size);

/* Asks a live process through its page and prints its answer. */
int tool_request(const struct tool_options *options);

/* Reads options (CACHALOT_CONF) as the library does; complains of each that it would only warn of.
 */
int tool_conf(const struct tool_options *options);

/* Prints the options, a line each: name, default, values, `pytorch` if PyTorch's variable sets it
 * too, meaning; tabs between them. */
int tool_list_options(const struct tool_options *options);

#endif
