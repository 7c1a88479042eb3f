/* Warnings into the page, from any thread: a slot is claimed with its count, then its text is
 * written. */
#include "stats/page/page.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int claim(struct page_warning *slot)
{
    uint64_t expected = 0;
    return atomic_compare_exchange_strong(&slot->count, &expected, WARNING_BEGUN);
}

/* Two threads that meet the same new text at once may both add it: the report adds those up. */
static void warn(struct page *page, const char *text)
{
    for (unsigned i = 0; i < PAGE_WARNINGS; i++) {
        struct page_warning *slot = &page->warning[i];
        if (claim(slot)) {
            snprintf(slot->text, sizeof slot->text, "%s", text);
            atomic_store_explicit(&slot->count, 1, memory_order_release);
            return;
        }
        uint64_t count = atomic_load_explicit(&slot->count, memory_order_acquire);
        if (count != WARNING_BEGUN && strcmp(slot->text, text) == 0) {
            atomic_fetch_add(&slot->count, 1);
            return;
        }
    }
    atomic_fetch_add(&page->warnings_lost, 1);
}

void page_warn(struct page *page, const char *format, ...)
{
    if (page == NULL)
        return;
    char text[sizeof page->warning->text];
    int error = errno;
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    warn(page, text);
    errno = error;
}
