/* Other processes of the user on a device: what they held when a request ran out of memory, and what
 * they gave when they were asked. */
#include "stats/report/parts.h"
#include "stats/report/value.h"

static json_t *neighbour(const struct page_neighbour *n)
{
    json_t *object = json_object();
    report_put(object, "pid", report_number(n->pid));
    report_put(object, "program", report_string_or_null(n->program));
    return object;
}

json_t *report_holders(const struct page_oom *oom)
{
    json_t *array = json_array();
    for (unsigned i = 0; i < PAGE_NEIGHBOURS && oom->neighbour[i].pid; i++) {
        json_t *object = neighbour(&oom->neighbour[i]);
        REPORT_NUMBER(object, &oom->neighbour[i], live_bytes);
        REPORT_NUMBER(object, &oom->neighbour[i], idle_bytes);
        report_append(array, object);
    }
    return array;
}

static json_t *ask(const struct page_ask *of, uint64_t number)
{
    json_t *event = json_object(), *from = json_array();
    report_put(event, "number", report_number(number));
    REPORT_NUMBER(event, of, time_ns);
    REPORT_NUMBER(event, of, device);
    REPORT_NUMBER(event, of, asked_bytes);
    REPORT_NUMBER(event, of, given_bytes);
    REPORT_NUMBER(event, of, waited_ns);
    report_put(event, "processes", report_number(of->asked));
    report_put(event, "answered", report_number(of->answered));
    for (unsigned i = 0; i < PAGE_NEIGHBOURS && of->neighbour[i].pid; i++) {
        json_t *object = neighbour(&of->neighbour[i]);
        REPORT_NUMBER(object, &of->neighbour[i], given_bytes);
        report_append(from, object);
    }
    report_put(event, "from", from);
    return event;
}

json_t *report_asks(const struct report_source *source)
{
    const struct page *page = source->page;
    json_t *events = json_array();
    uint64_t count = page->ask_count;
    for (uint64_t n = count > PAGE_ASKS ? count - PAGE_ASKS : 0; n < count; n++)
        if (page->ask[n % PAGE_ASKS].time_ns)
            report_append(events, ask(&page->ask[n % PAGE_ASKS], n));
    return events;
}
