/* The name of a page's program, for people: in file names, lists and tables. */
#ifndef CACHALOT_STATS_PAGE_PROGRAM_H
#define CACHALOT_STATS_PAGE_PROGRAM_H

#include "stats/page/layout.h"

/* Fills page->program from exe and the arguments of this process: the executable's name; of a Python
 * program the script's (train.py), the module's (python -m pkg.train), or python-c. Without arguments,
 * which CACHALOT_REDACT leaves out, it is the executable's. */
void page_name_program(struct page *page);

#endif
