#include "scripts/page_tool/page_tool.h"

#include <stdio.h>

struct page *tool_open(const char *path, int *asks)
{
    const char *problem;
    struct page *page = page_open(path, asks, &problem);
    if (page == NULL)
        fprintf(stderr, "cachalot-page: %s: %s\n", path, problem);
    return page;
}
