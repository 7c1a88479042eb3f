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

int tool_list_options(const struct tool_options *unused)
{
    (void)unused;
    struct options options;
    options_default(&options);
    for (unsigned i = 0; options_name(i); i++) {
        char value[320];
        options_value(&options, i, value, sizeof value);
        printf("%s\t%s\t%s\t%s\t%s\n", options_name(i), value, options_wants(i),
               options_pytorch_keys() >> i & 1 ? "pytorch" : "", options_meaning(i));
    }
    return fflush(stdout) ? TOOL_FAILED : TOOL_DONE;
}
