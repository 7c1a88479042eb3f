/* Traces for `cachalot replay`: any bytes are lines, each an operation or a problem, and no line is
 * lost; or events, up to the first problem. */
#include "fuzz.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "scripts/replay/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct trace trace;
    static int file = -1;
    uint64_t lines = 0;
    if (file < 0)
        file = memfd_create("trace", MFD_CLOEXEC);
    if (ftruncate(file, 0) || pwrite(file, data, size, 0) != (ssize_t)size ||
        lseek(file, 0, SEEK_SET))
        return 0;
    trace.line = trace.bytes_read = 0;
    trace.rmm = trace.at_end = trace.recorded = 0;
    trace.device = -1;
    trace_init(&trace, file);
    while (trace_fill(&trace) > 0)
        while (trace.begin < trace.end) {
            struct operation operation;
            uint64_t id = 0;
            const char *problem = trace_next(&trace, &operation, &id);
            HOLDS(!problem || strlen(problem) > 0);
            HOLDS(problem || operation.kind <= OP_NONE);
            if (problem && trace.recorded)
                return 0;
            lines++;
        }
    if (trace.recorded)
        return 0;
    HOLDS(trace.bytes_read == size && trace.line == lines);
    uint64_t newlines = 0;
    for (size_t i = 0; i < size; i++)
        newlines += data[i] == '\n';
    HOLDS(lines >= newlines); /* one more without its newline, more if one is too long */
    return 0;
}
