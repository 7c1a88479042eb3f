/* The page's table of fields: the name, place and unit of every number. */
#ifndef CACHALOT_STATS_PAGE_FIELDS_H
#define CACHALOT_STATS_PAGE_FIELDS_H

#include "stats/page/layout.h"

/* The entries of the table. */
unsigned page_fields_count(void);

/* Writes the table at page->field_offset; field_count, device_offset and device_stride are set. */
void page_fields_write(struct page *page);

#endif
