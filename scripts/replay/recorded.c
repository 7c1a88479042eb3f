/* Reading what CACHALOT_TRACE recorded (stats/output/trace.h): a header, then events as they lay in the
 * ring. A place whose number is 0 belongs to a thread that was killed while it wrote. */
#include "scripts/replay/trace.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "stats/output/trace.h"

int trace_is_recorded(const char *text, size_t length)
{
    return length > sizeof TRACE_MAGIC && memcmp(text, TRACE_MAGIC, sizeof TRACE_MAGIC) == 0;
}

/* Drops the header from the buffer's begin, once it is there. */
static void drop_header(struct trace *trace)
{
    size_t have = (size_t)(trace->filled - trace->buffer);
    if (trace->line || have < TRACE_HEADER_BYTES)
        return;
    trace->line = 1; /* of text; here it is the number of the next event */
    trace->filled -= TRACE_HEADER_BYTES;
    memmove(trace->buffer, trace->buffer + TRACE_HEADER_BYTES, have - TRACE_HEADER_BYTES);
}

int recorded_fill(struct trace *trace)
{
    for (;;) {
        drop_header(trace);
        size_t have = (size_t)(trace->filled - trace->buffer);
        size_t whole = trace->line ? have / sizeof(struct event) * sizeof(struct event) : 0;
        trace->begin = trace->buffer;
        trace->end = trace->buffer + whole;
        if (whole || trace->at_end)
            return whole != 0;
        ssize_t n =
            read(trace->fd, trace->filled, (size_t)(trace->buffer + TRACE_BUFFER - trace->filled));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        trace->bytes_read += (uint64_t)n;
        trace->filled += n;
        trace->at_end = n == 0;
    }
}

/* Without a device given, that of the first event is replayed. */
static int is_wanted(struct trace *trace, uint64_t device)
{
    if (trace->device < 0)
        trace->device = (int)device;
    if (trace->device == (int)device)
        return 1;
    trace->others++;
    return 0;
}

/* Memory that the cache did not serve is not replayed. */
static void count_uncached(struct trace *trace, const struct event *event)
{
    uint64_t kind = event->requested - 1, bytes = event->size;
    if (kind >= UNCACHED_KINDS)
        return;
    trace->uncached[kind].events++;
    if (event->who >> 60 == EVENT_uncached_alloc)
        trace->uncached[kind].bytes += bytes;
    else
        trace->uncached[kind].bytes -=
            bytes < trace->uncached[kind].bytes ? bytes : trace->uncached[kind].bytes;
    if (trace->uncached[kind].bytes > trace->uncached[kind].peak)
        trace->uncached[kind].peak = trace->uncached[kind].bytes;
}

const char *recorded_next(struct trace *trace, struct operation *operation, uint64_t *id)
{
    struct event event;
    memcpy(&event, trace->begin, sizeof event);
    trace->begin += sizeof event;
    operation->kind = OP_NONE;
    if (event.number == 0) {
        trace->missing++;
        trace->line++;
        return NULL;
    }
    if (event.number != trace->line)
        return "not the event of this place";
    uint64_t action = event.who >> 60, device = event.who >> 48 & 0xfff;
    if (action >= EVENT_ACTIONS)
        return "there is no such action";
    trace->line++;
    if (action == EVENT_uncached_alloc || action == EVENT_uncached_free)
        count_uncached(trace, &event);
    if (action != EVENT_alloc && action != EVENT_free && action != EVENT_oom)
        return NULL;
    if (!is_wanted(trace, device))
        return NULL;
    operation->kind = action == EVENT_alloc  ? OP_MALLOC
                      : action == EVENT_free ? OP_FREE
                                             : OP_FAILURE;
    operation->bytes = action == EVENT_free ? 0 : event.requested;
    *id = event.address;
    return NULL;
}
