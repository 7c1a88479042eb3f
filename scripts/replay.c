/* cachalot-replay: a recorded trace once more through the allocator, on a device made of
 * bookkeeping. `cachalot replay` and `cachalot tune` call it; what it prints is JSON. */
#include "scripts/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
    "usage: cachalot-replay [--conf OPTIONS] [--capacity BYTES] [--costs FILE] [--name TEXT]\n"
    "                       [--progress] FILE|-\n"
    "       cachalot-replay [--costs FILE] --print-costs\n";

/* In place of addresses, which are never so low: it was out of memory, or asked for nothing. */
#define NO_MEMORY 1
#define NO_BYTES 2

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Would the driver have had `bytes` if it served the program without a cache in between? */
static int native_would_fit(const struct replay *replay, uint64_t bytes)
{
    return bytes <= replay->capacity - stats_current_all(replay->stats, STAT_requested_bytes);
}

static void note_oom(struct replay *replay, uint64_t bytes)
{
    const struct device_stats *stats = replay->stats;
    uint64_t n = replay->page->oom_count++;
    struct page_oom *event = &replay->page->oom[n % PAGE_OOMS];
    replay->oom_operation[n % PAGE_OOMS] = replay->operations;
    event->requested_bytes = bytes;
    event->allocated_bytes = stats_current_all(stats, STAT_allocated_bytes);
    event->active_bytes = stats_current_all(stats, STAT_active_bytes);
    event->reserved_bytes = stats_current_all(stats, STAT_reserved_bytes);
    event->reusable_bytes = stats_get(stats, COUNTER_reusable_bytes);
    event->largest_allocatable_bytes = stats_get(stats, COUNTER_largest_allocatable_bytes);
    event->device_free_bytes = replay->capacity - replay->device.used;
    event->memory_limit_bytes = stats_get(stats, COUNTER_memory_limit_bytes);
    event->native_would_fit = (uint64_t)native_would_fit(replay, bytes);
}

static const char *replay_malloc(struct replay *replay, const struct operation *operation)
{
    uint64_t address = NO_BYTES;
    replay->mallocs++;
    if (!operation->bytes)
        replay->empty++;
    else if (allocator_malloc(replay->allocator, operation->bytes, &address)) {
        note_oom(replay, operation->bytes);
        address = NO_MEMORY;
    }
    int code = table_put(&replay->live, operation->id, address);
    if (code > 0)
        return "allocates what is allocated already";
    return code ? "no memory to remember it" : NULL;
}

static const char *replay_free(struct replay *replay, const struct operation *operation)
{
    uint64_t address = table_take(&replay->live, operation->id);
    replay->frees++;
    if (!address)
        return "frees what is not allocated";
    if (address > NO_BYTES && domain_free(replay->domain, address, FREED_NATIVE))
        return "the allocator does not know what it frees";
    return NULL;
}

static const char *step(struct replay *replay, const struct operation *operation)
{
    const char *problem = NULL;
    replay->device.operation = replay->operations;
    switch (operation->kind) {
    case OP_MALLOC:
        problem = replay_malloc(replay, operation);
        break;
    case OP_FREE:
        problem = replay_free(replay, operation);
        break;
    case OP_EMPTY:
        replay->empty++;
        break;
    case OP_FAILURE:
        replay->recorded_failures++;
        break;
    case OP_NONE:
        return NULL;
    }
    replay->operations++;
    return problem;
}

/* One line that is written over, after the first second, about five times a second. */
static void show_progress(const struct replay *replay, int last)
{
    static double next;
    static int shown;
    double time = now();
    if (next == 0)
        next = replay->began + 1;
    if (last && shown)
        fprintf(stderr, "\r\033[K");
    if (last || time < next)
        return;
    next = time + 0.2;
    shown = 1;
    struct stat status;
    fprintf(stderr, "\rcachalot: %.1f million operations", (double)replay->operations / 1e6);
    if (fstat(replay->trace.fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0)
        fprintf(stderr, ", %.0f %%",
                100 * (double)replay->trace.bytes_read / (double)status.st_size);
    fprintf(stderr, "\033[K");
}

static int broken(const struct replay *replay, const char *reason)
{
    fprintf(stderr, "cachalot-replay: %s: line %llu: %s\n", replay->name,
            (unsigned long long)replay->trace.line, reason);
    return REPLAY_BROKEN;
}

static int run(struct replay *replay, int progress)
{
    struct trace *trace = &replay->trace;
    struct operation operation;
    int filled;
    replay->began = now();
    while ((filled = trace_fill(trace)) > 0) {
        while (trace->begin < trace->end) {
            const char *problem = trace_next(trace, &operation);
            if (problem || (problem = step(replay, &operation)))
                return broken(replay, problem);
        }
        if (progress)
            show_progress(replay, 0);
    }
    replay->ended = now();
    if (progress)
        show_progress(replay, 1);
    if (filled < 0) {
        fprintf(stderr, "cachalot-replay: %s: %s\n", replay->name, strerror(errno));
        return REPLAY_BROKEN;
    }
    if (!replay->operations) {
        fprintf(stderr, "cachalot-replay: %s: no operation in it\n", replay->name);
        return REPLAY_BROKEN;
    }
    return REPLAY_DONE;
}

static void note_options(struct page *page, const struct options *options)
{
    for (unsigned i = 0; options_name(i) && i < PAGE_CONFIGS; i++) {
        struct page_config *config = &page->config[page->config_count++];
        snprintf(config->name, sizeof config->name, "%s", options_name(i));
        options_value(options, i, config->value, sizeof config->value);
        snprintf(config->source, sizeof config->source, "%s",
                 options->given >> i & 1 ? "--conf" : "default");
    }
}

/* Frees are reusable at once: nothing is ever submitted, so that the lanes say that the device is
 * idle. Other free modes take fences, which here have passed as soon as they are recorded. */
static const struct lane_ops no_streams;

static int set_up(struct replay *replay)
{
    static struct {
        struct page page;
        struct page_device device;
    } memory;
    struct page *page = replay->page = &memory.page;
    snprintf(page->tool, sizeof page->tool, "cachalot %s", CACHALOT_VERSION);
    page->device_count = 1;
    page->device_offset = (uint32_t)((char *)&memory.device - (char *)&memory.page);
    page->device_stride = sizeof memory.device;
    memory.device.used = 1;
    memory.device.total_bytes = replay->capacity < REPLAY_NO_CAPACITY ? replay->capacity : 0;
    snprintf(memory.device.name, sizeof memory.device.name, "replay");
    replay->stats = &memory.device.stats;
    note_options(page, &replay->options);
    if (replay_device_init(&replay->device, replay->capacity, &replay->costs) ||
        !(replay->domain = domain_create(&replay->options)))
        return -1;
    if (replay->options.free_mode == FREE_ASYNC && replay->options.cache)
        lane_start(replay->domain, &no_streams);
    replay->allocator =
        allocator_create(replay->domain, &replay_device_ops, &replay->device, 1, 0, replay->stats,
                         options_limit(&replay->options, replay->capacity));
    return replay->allocator ? 0 : -1;
}

static void complain(void *context, const char *message)
{
    (void)context;
    fprintf(stderr, "cachalot-replay: %s\n", message);
}

struct arguments {
    const char *conf, *costs, *path;
    int progress, print_costs;
};

static int read_arguments(int argc, char **argv, struct arguments *arguments, struct replay *replay)
{
    static const struct option known[] = {{"conf", required_argument, NULL, 'o'},
                                          {"capacity", required_argument, NULL, 'c'},
                                          {"costs", required_argument, NULL, 'p'},
                                          {"name", required_argument, NULL, 'n'},
                                          {"progress", no_argument, NULL, 'g'},
                                          {"print-costs", no_argument, NULL, 't'},
                                          {NULL, 0, NULL, 0}};
    int bad = 0;
    static char none[1];
    char *end = none;
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (c) {
        case 'o':
            arguments->conf = optarg;
            break;
        case 'c':
            replay->capacity = strtoull(optarg, &end, 10);
            bad |= !replay->capacity || *end || replay->capacity > REPLAY_NO_CAPACITY;
            break;
        case 'p':
            arguments->costs = optarg;
            break;
        case 'n':
            replay->name = optarg;
            break;
        case 'g':
            arguments->progress = 1;
            break;
        case 't':
            arguments->print_costs = 1;
            break;
        default:
            bad = 1;
        }
    }
    arguments->path = argv[optind];
    return bad || argc - optind != !arguments->print_costs ? -1 : 0;
}

static int open_trace(struct replay *replay, const char *path)
{
    int fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : 0;
    if (!replay->name)
        replay->name = path;
    if (fd < 0)
        fprintf(stderr, "cachalot-replay: %s: %s\n", replay->name, strerror(errno));
    trace_init(&replay->trace, fd);
    return fd < 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
    static struct replay replay = {.capacity = REPLAY_NO_CAPACITY};
    struct arguments arguments = {0};
    if (read_arguments(argc, argv, &arguments, &replay)) {
        fputs(usage, stderr);
        return REPLAY_USAGE;
    }
    options_default(&replay.options);
    if (arguments.conf &&
        options_parse(&replay.options, arguments.conf, OPTIONS_ALL, complain, NULL))
        return REPLAY_USAGE;
    if (costs_read(&replay.costs, arguments.costs))
        return REPLAY_USAGE;
    if (arguments.print_costs) {
        costs_print(&replay.costs);
        return REPLAY_DONE;
    }
    if (open_trace(&replay, arguments.path))
        return REPLAY_BROKEN;
    if (set_up(&replay)) {
        fprintf(stderr, "cachalot-replay: no memory\n");
        return REPLAY_FAILED;
    }
    int code = run(&replay, arguments.progress);
    return code == REPLAY_DONE ? replay_print(&replay) : code;
}
