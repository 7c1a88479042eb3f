/* Who the process of a page is. */
#ifndef CACHALOT_STATS_PAGE_PAGE_IDENTITY_H
#define CACHALOT_STATS_PAGE_PAGE_IDENTITY_H

#include "stats/page/page_layout.h"

/* Fills in what the page's name is made of: pid, start_ticks; pid_namespace and uid with them. */
void page_identity_key(struct page *page);

/* Fills in tool, start times, exe, argv, cwd and hostname. */
void page_identity_write(struct page *page);

#endif
