#include <stdio.h>

#include "allocator/options.h"
#include "scripts/page_tool.h"

static void complain(void *context, const char *message)
{
    (void)context;
    fprintf(stderr, "cachalot-page: %s\n", message);
}

int tool_conf(const struct tool_options *conf)
{
    struct options options;
    options_default(&options);
    return options_parse(&options, conf->path, OPTIONS_ALL, complain, NULL) ? TOOL_FAILED
                                                                            : TOOL_DONE;
}
