/* The parts of the program cachalot-page. Exit codes: 0 done, 1 failed, 2 usage, 3 no or bad
 * page. */
#ifndef CACHALOT_SCRIPTS_PAGE_TOOL_PAGE_TOOL_H
#define CACHALOT_SCRIPTS_PAGE_TOOL_PAGE_TOOL_H

#include "stats/page/page.h"

enum tool_exit { TOOL_DONE = 0, TOOL_FAILED = 1, TOOL_USAGE = 2, TOOL_BAD_PAGE = 3 };

struct tool_options {
    const char *path, *output, *reason, *action;
    int code, signal, blocks;
    double timeout; /* seconds */
};

/* page_open that complains on stderr. */
struct page *tool_open(const char *path, int writable);

/* Asks a live process through its page and prints its answer. */
int tool_request(const struct tool_options *options);

/* Reads options (CACHALOT_CONF) as the library does; complains of each that it would only warn of.
 */
int tool_conf(const struct tool_options *options);

/* Prints the options, a line each: name, default, values, `pytorch` if PyTorch's variable sets it
 * too, meaning; tabs between them. */
int tool_list_options(const struct tool_options *options);

#endif
