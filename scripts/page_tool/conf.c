#include <stdio.h>

#include "allocator/base/options.h"
#include "scripts/page_tool/page_tool.h"

static void complain(void *context, const char *message)
{
    (void)context;
    fprintf(stderr, "cachalot-page: %s\n", message);
}

int tool_conf(const struct tool_options *conf)
{
    struct options options;
    options_default(&options);
    if (!options_parse(&options, conf->path, OPTIONS_ALL, complain, NULL))
        return TOOL_DONE;
    fprintf(stderr, "cachalot-page: the options are");
    for (unsigned i = 0; options_name(i); i++)
        fprintf(stderr, "%s %s", i ? "," : "", options_name(i));
    fprintf(stderr, "\n");
    return TOOL_FAILED;
}
