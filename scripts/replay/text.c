/* Reading traces: our CSV (`op,id,bytes,stream`: a, f, and o for what was out of memory) and RMM's log
 * (`Thread,Time,Action,Pointer,Size,Stream`). Whole lines lie in the buffer and the last ends with
 * a newline, so that nothing here looks for the end of the text. */
#include "scripts/replay/trace.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "stats/output/trace.h"

static const char own_header[] = "op,id,bytes,stream";
static const char byte_order_mark[] = "\xef\xbb\xbf";
static const char rmm_header[] = "Thread,Time,Action,Pointer,Size,Stream";

void trace_init(struct trace *trace, int fd)
{
    trace->fd = fd;
    trace->begin = trace->end = trace->filled = trace->buffer;
    trace->added = NULL;
}

static char *last_newline(char *begin, char *end)
{
    return memrchr(begin, '\n', (size_t)(end - begin));
}

/* More of the file, and at its begin so much that it can be told what it is: a pipe may have less at once. */
static ssize_t read_more(struct trace *trace)
{
    ssize_t n, sum = 0;
    do {
        n = read(trace->fd, trace->filled + sum,
                 (size_t)(trace->buffer + TRACE_BUFFER - trace->filled - sum));
        sum += n > 0 ? n : 0;
    } while ((n < 0 && errno == EINTR) ||
             (n > 0 && !trace->bytes_read && (size_t)sum <= sizeof TRACE_MAGIC));
    return n < 0 ? -1 : sum;
}

int trace_fill(struct trace *trace)
{
    size_t rest = (size_t)(trace->filled - trace->end);
    memmove(trace->buffer, trace->end, rest);
    trace->begin = trace->end = trace->buffer;
    trace->filled = trace->buffer + rest;
    if (trace->recorded)
        return recorded_fill(trace);
    while (!trace->at_end && trace->end == trace->buffer) {
        ssize_t n = read_more(trace);
        if (n < 0)
            return -1;
        trace->recorded = !trace->bytes_read && trace_is_recorded(trace->buffer, (size_t)n);
        trace->bytes_read += (uint64_t)n;
        if (trace->recorded) {
            trace->filled += n;
            return recorded_fill(trace);
        }
        char *newline = last_newline(trace->filled, trace->filled + n);
        trace->filled += n;
        trace->at_end = n == 0;
        if (n == 0 && trace->filled > trace->buffer) /* the last line may lack its newline */
            *(trace->added = newline = trace->filled++) = '\n';
        else if (!newline && trace->filled == trace->buffer + TRACE_BUFFER)
            *(newline = trace->filled - 1) = '\n'; /* no line is that long: it will be refused */
        if (newline)
            trace->end = newline + 1;
    }
    return trace->end > trace->begin;
}

/* The digits at *text; returns how many, or 0 if there are none or they are too many. */
static unsigned read_number(const char **text, uint64_t *number)
{
    const char *at = *text;
    uint64_t value = 0;
    for (unsigned digit; (digit = (unsigned char)*at - (unsigned)'0') < 10; at++)
        value = 10 * value + digit;
    unsigned digits = (unsigned)(at - *text);
    *text = at;
    *number = value;
    return digits < 20 ? digits : 0;
}

static unsigned read_hex(const char **text, uint64_t *number)
{
    const char *at = *text;
    uint64_t value = 0;
    for (;; at++) {
        unsigned digit = (unsigned char)*at - (unsigned)'0';
        unsigned letter = ((unsigned char)*at | 0x20u) - (unsigned)'a';
        if (digit >= 10 && letter >= 6)
            break;
        value = 16 * value + (digit < 10 ? digit : letter + 10);
    }
    unsigned digits = (unsigned)(at - *text);
    *text = at;
    *number = value;
    return digits <= 16 ? digits : 0;
}

static int is_end(const char *text)
{
    return *text == '\n' || (*text == '\r' && text[1] == '\n');
}

/* `,stream` and the line's end; `stream` may be left out. */
static const char *own_rest(const char *text)
{
    uint64_t stream;
    if (is_end(text))
        return NULL;
    if (*text++ != ',' || !read_number(&text, &stream))
        return "the stream is not a number of 1 to 19 digits";
    return is_end(text) ? NULL : "more than op,id,bytes,stream";
}

static const char *own_line(const char *text, struct operation *operation, uint64_t *id)
{
    char op = text[0];
    if ((op != 'a' && op != 'f' && op != 'o') || text[1] != ',')
        return "the operation is neither `a`, `f` nor `o`";
    operation->kind = op == 'a' ? OP_MALLOC : op == 'f' ? OP_FREE : OP_FAILURE;
    text += 2;
    if (!read_number(&text, id))
        return "the id is not a number of 1 to 19 digits";
    if (op == 'f' && is_end(text))
        return NULL;
    if (*text != ',')
        return is_end(text) ? "cut off after the id" : "the id is not a number of 1 to 19 digits";
    text++;
    if (op == 'f' && (*text == ',' || is_end(text)))
        return own_rest(text);
    if (!read_number(&text, &operation->bytes) || (*text != ',' && !is_end(text)))
        return "the bytes are not a number of 1 to 19 digits";
    return *text == ',' || op == 'f' ? own_rest(text) : "cut off after the bytes";
}

/* Past the next comma of the line; NULL if it has none. */
static const char *next_field(const char *text)
{
    while (*text != ',' && *text != '\n')
        text++;
    return *text == ',' ? text + 1 : NULL;
}

static int begins(const char **text, const char *word)
{
    size_t length = strlen(word);
    if (strncmp(*text, word, length))
        return 0;
    *text += length;
    return 1;
}

static const char *rmm_pointer(const char *text, uint64_t *id)
{
    *id = 0;
    if (begins(&text, "(nil),"))
        return text;
    if (!begins(&text, "0x") || !read_hex(&text, id) || *text != ',')
        return NULL;
    return text + 1;
}

static const char *rmm_line(const char *text, struct operation *operation, uint64_t *id)
{
    if (!(text = next_field(text)) || !(text = next_field(text)))
        return "cut off before the action";
    if (begins(&text, "allocate,"))
        operation->kind = OP_MALLOC;
    else if (begins(&text, "free,"))
        operation->kind = OP_FREE;
    else if (begins(&text, "allocate failure,"))
        operation->kind = OP_FAILURE;
    else
        return "the action is none of `allocate`, `allocate failure` and `free`";
    if (!(text = rmm_pointer(text, id)))
        return "the pointer is not a number";
    if (!read_number(&text, &operation->bytes) || *text != ',')
        return "the size is not a number of 1 to 19 digits, or cut off";
    if (is_end(text + 1))
        return "cut off before the stream";
    if (!operation->bytes && operation->kind != OP_FAILURE) /* they all have the same pointer */
        operation->kind = OP_EMPTY;
    return next_field(text + 1) ? "more than Thread,Time,Action,Pointer,Size,Stream" : NULL;
}

/* The first line says which kind of trace this is, be it a header or an operation. Returns how long it is if it is a header. */
static size_t header(struct trace *trace)
{
    const char *text = trace->begin;
    trace->rmm = begins(&text, rmm_header);
    if (!trace->rmm && !begins(&text, own_header)) {
        struct operation operation;
        uint64_t id;
        trace->rmm = !rmm_line(trace->begin, &operation, &id); /* a log's header may be elsewhere */
        return 0;
    }
    return is_end(text) ? (size_t)(strchr(text, '\n') + 1 - trace->begin) : 0;
}

const char *trace_next(struct trace *trace, struct operation *operation, uint64_t *id)
{
    if (trace->recorded)
        return recorded_next(trace, operation, id);
    operation->kind = OP_NONE;
    operation->bytes = 0;
    const char *line = trace->begin;
    char *newline = rawmemchr(line, '\n');
    trace->begin = newline + 1;
    if (trace->line++ == 0) {
        begins(&line, byte_order_mark);
        trace->begin = (char *)line;
        size_t length = header(trace);
        trace->begin = newline + 1;
        if (length)
            return NULL;
    }
    if (is_end(line))
        return NULL;
    const char *problem =
        trace->rmm ? rmm_line(line, operation, id) : own_line(line, operation, id);
    if (!problem && newline == trace->added && !memchr(line + 2, ',', (size_t)(newline - line) - 2))
        return "cut off after the id, or its newline is missing"; /* f,12 may have been f,123,,0 */
    if (problem && memchr(line, 0, (size_t)(newline - line)))
        return "not text";
    if (problem && trace->line == 1 && operation->kind == OP_NONE)
        return "neither op,id,bytes,stream nor an RMM log's header, nor an operation: no trace";
    return problem;
}
