#include "scripts/page_tool/page_tool.h"

#include <stdio.h>

struct page *tool_open(const char *path, int writable)
{
    const char *problem;
    struct page *page = page_open(path, writable, &problem);
    if (page == NULL)
        fprintf(stderr, "cachalot-page: %s: %s\n", path, problem);
    return page;
}
