/* cachalot: a recorded trace once more through the allocator, on a device made of
 * bookkeeping. `cachalot replay` and `cachalot tune` call it; what it prints is JSON. */
#include "scripts/replay/arguments.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "allocator/base/policy.h"
#include "stats/page/page.h"

static const char usage[] =
    "usage: cachalot-replay [--conf OPTIONS] [--capacity BYTES] [--costs FILE] [--name TEXT]\n"
    "                       [--kind TEXT] [--recorded-reserved BYTES] [--device N] [--progress]\n"
    "                       [--behind OPERATIONS] [--policy NAME=NUMBER] [--parent PROCESS] "
    "FILE|-\n"
    "       cachalot-replay [--costs FILE] --print-costs\n"
    "       cachalot-replay [--policy NAME=NUMBER] --policies\n";

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
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
    event->largest_allocatable_bytes = stats_largest_allocatable(stats);
    event->device_free_bytes = replay->capacity - replay->device.used;
    event->memory_limit_bytes = stats_get(stats, COUNTER_memory_limit_bytes);
    event->native_would_fit =
        (uint64_t)allocator_fits_natively(replay->allocator, bytes, event->device_free_bytes);
}

/* Returns the address, or 0: out of memory. */
static uint64_t take(struct replay *replay, uint64_t bytes)
{
    uint64_t address = 0;
    int code = allocator_malloc(replay->allocator, bytes, &address);
    if (code == 0)
        return address;
    if (code == ALLOCATOR_PASS) /* more than any driver has */
        stats_count(replay->stats, COUNTER_num_ooms, 1);
    note_oom(replay, bytes);
    return 0;
}

static void give(struct replay *replay, uint64_t address)
{
    if (address && domain_free(replay->domain, address, FREED_NATIVE))
        abort(); /* the allocator does not know what it gave */
}

static void replay_malloc(struct replay *replay, const struct operation *operation)
{
    replay->mallocs++;
    replay->empty += !operation->bytes;
    replay->address[operation->slot] = operation->bytes ? take(replay, operation->bytes) : 0;
}

static void replay_free(struct replay *replay, const struct operation *operation)
{
    replay->frees++;
    give(replay, replay->address[operation->slot]);
}

/* What was out of memory then is tried where memory has an end, and given back at once: for how
 * long the program would have had it nobody knows. */
static void replay_failure(struct replay *replay, const struct operation *operation)
{
    replay->recorded_failures++;
    if (replay->has_end && operation->bytes)
        give(replay, take(replay, operation->bytes));
}

static void step(struct replay *replay, const struct operation *operation)
{
    replay->device.operation = replay->operations;
    if (operation->kind == OP_MALLOC)
        replay_malloc(replay, operation);
    else if (operation->kind == OP_FREE)
        replay_free(replay, operation);
    else if (operation->kind == OP_EMPTY)
        replay->empty++;
    else
        replay_failure(replay, operation);
    replay->operations++;
}

/* Operations between two looks at the clock: one of large blocks may take 0.1 s. */
#define PROGRESS_OPERATIONS 32

static struct {
    double next;    /* when it is shown again, in seconds */
    uint64_t bytes; /* of the trace, before this batch */
    int is_shown;
} progress;

/* One line that is written over, after the first second, about five times a second. */
static void show_progress(const struct replay *replay, const struct batch *batch, unsigned done)
{
    double time = now(), part = (double)done / batch->count;
    if (time < progress.next)
        return;
    progress.next = time + 0.2;
    progress.is_shown = 1;
    struct stat status;
    double bytes = (double)progress.bytes + part * (double)(batch->bytes - progress.bytes);
    fprintf(stderr,
            replay->operations < 1000000 ? "\rcachalot: %.0f operations"
                                         : "\rcachalot: %.1f million operations",
            (double)replay->operations / (replay->operations < 1000000 ? 1 : 1e6));
    if (fstat(replay->feed.trace.fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0)
        fprintf(stderr, ", %.0f %%", 100 * bytes / (double)status.st_size);
    fprintf(stderr, "\033[K");
}

static void hide_progress(void)
{
    if (progress.is_shown)
        fprintf(stderr, "\r\033[K");
}

static void replay_batch(struct replay *replay, const struct batch *batch, int shows)
{
    for (unsigned i = 0; i < batch->count; i++) {
        step(replay, &batch->operation[i]);
        if (shows && (i + 1) % PROGRESS_OPERATIONS == 0)
            show_progress(replay, batch, i + 1);
    }
    progress.bytes = batch->bytes;
    if (batch->is_last)
        hide_progress();
}

static int broken(const struct replay *replay, const struct batch *batch)
{
    fprintf(stderr, "cachalot: %s: %s %llu: %s\n", replay->name,
            replay->feed.trace.recorded ? "event" : "line", (unsigned long long)batch->line,
            batch->problem);
    return REPLAY_BROKEN;
}

static int make_room(struct replay *replay, uint64_t slots)
{
    if (slots <= replay->addresses)
        return 0;
    uint64_t *address = realloc(replay->address, 2 * slots * sizeof *address);
    if (!address)
        return -1;
    replay->address = address;
    replay->addresses = 2 * slots;
    return 0;
}

static int no_memory(const char *what)
{
    hide_progress();
    fprintf(stderr, "cachalot: no memory%s\n", what);
    return REPLAY_FAILED;
}

/* Says what memory of the recorded program no option of the cache changes. */
static void say_uncached(const struct replay *replay)
{
#define X(name, kind) #kind,
    static const char *const names[] = { UNCACHED_LIST(X) };
#undef X
    for (unsigned i = 0; i < UNCACHED_KINDS; i++)
        if (replay->feed.trace.uncached[i].events)
            fprintf(stderr,
                    "cachalot: %s: %s memory that the cache did not serve is left out: %" PRIu64
                    " events, at most %" PRIu64 " bytes\n",
                    replay->name, names[i], replay->feed.trace.uncached[i].events,
                    replay->feed.trace.uncached[i].peak);
}

static int run(struct replay *replay, int shows)
{
    const struct batch *batch;
    int code = REPLAY_DONE;
    replay->began = now();
    progress.next = replay->began + 1;
    for (int last = 0; !last; feed_done(&replay->feed)) {
        batch = feed_next(&replay->feed);
        if (make_room(replay, batch->slots))
            return no_memory("");
        replay_batch(replay, batch, shows);
        last = batch->is_last;
        code = batch->problem ? broken(replay, batch) : REPLAY_DONE;
    }
    replay->ended = now();
    feed_end(&replay->feed);
    if (code != REPLAY_DONE)
        return code;
    unsigned long long others = replay->feed.trace.others, missing = replay->feed.trace.missing;
    if (missing)
        fprintf(stderr,
                "cachalot: %s: %llu of its events are missing: threads were killed as they wrote "
                "them, or the file has a hole\n",
                replay->name, missing);
    say_uncached(replay);
    if (!others && !replay->operations)
        fprintf(stderr, "cachalot: %s: no operation in it\n", replay->name);
    else if (others && !(replay->device_is_chosen && replay->operations))
        fprintf(stderr,
                "cachalot: %s: %s device %d; %llu events of others are left out, choose with "
                "--device\n",
                replay->name, replay->operations ? "of" : "no event of", replay->feed.trace.device,
                others);
    return replay->operations ? REPLAY_DONE : REPLAY_BROKEN;
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

/* As in a program, of which more is known (interpose/context/expandable.c). */
static void decide_kind(struct page *page, struct options *options)
{
    int dedicated = options->ipc == IPC_DEDICATED;
    if (options->expandable == EXPANDABLE_FALSE ||
        (options->expandable == EXPANDABLE_TRUE && !dedicated))
        return;
    options->expandable = dedicated ? EXPANDABLE_FALSE : EXPANDABLE_TRUE;
    page_config_in_force(page, "expandable_segments", dedicated ? "False" : "True",
                         dedicated ? "the option ipc" : NULL);
}

/* Else ordinary segments served, and their figures would be told for those of mapped memory. */
static int lacks_mapped_memory(const struct replay *replay)
{
    return replay->options.expandable == EXPANDABLE_TRUE && replay->options.cache &&
           !allocator_maps(replay->allocator);
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
    uint64_t limit = options_limit(&replay->options, replay->capacity);
    replay->has_end = replay->has_capacity || limit < REPLAY_NO_CAPACITY;
    memory.device.used = 1;
    memory.device.total_bytes = replay->has_capacity ? replay->capacity : 0;
    snprintf(memory.device.name, sizeof memory.device.name, "replay");
    replay->stats = &memory.device.stats;
    note_options(page, &replay->options);
    decide_kind(page, &replay->options);
    replay_device_init(&replay->device, replay->capacity, &replay->costs);
    if (!(replay->domain = domain_create(&replay->options)))
        return -1;
    if (replay->options.free_mode == FREE_ASYNC && replay->options.cache)
        lane_start(replay->domain, &no_streams);
    replay->allocator = allocator_create(replay->domain, &replay_device_ops, &replay->device, 1, 0,
                                         replay->stats, replay->capacity);
    return replay->allocator ? 0 : -1;
}

static void complain(void *context, const char *message)
{
    (void)context;
    fputs("cachalot: ", stderr);
    for (; *message; message++) /* nothing that a terminal would obey */
        fputc(iscntrl((unsigned char)*message) ? '?' : *message, stderr);
    fputc('\n', stderr);
}

/* Who waits may be killed at any time, and nobody else wants the result. -1: it was already. */
static int end_with(pid_t parent)
{
    if (!parent)
        return 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent)
        return 0;
    fputs("cachalot: who waits for this replay is not its parent, or has ended\n", stderr);
    return -1;
}

static int open_trace(struct replay *replay, const char *path)
{
    int fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : 0;
    if (!replay->name)
        replay->name = path;
    if (fd < 0)
        fprintf(stderr, "cachalot: %s: %s\n", replay->name, strerror(errno));
    return fd;
}

/* One number a line, in columns that tabs divide. */
static void print_policies(void)
{
    printf("name\tdefault\tunit\tfamily\twhat it trades\tmeasured\n");
    for (unsigned i = 0; i < policy_count(); i++) {
        const struct policy_row *row = policy_row(i);
        printf("%s\t%llu\t%s\t%s\t%s\t%s\n", row->name, (unsigned long long)row->initial, row->unit,
               row->family, row->trades, row->measured);
    }
}

int main(int argc, char **argv)
{
    static struct replay replay = {.capacity = REPLAY_NO_CAPACITY, .feed.trace.device = -1};
    struct arguments arguments = {0};
    if (arguments_read(argc, argv, &arguments, &replay)) {
        fputs(usage, stderr);
        return REPLAY_USAGE;
    }
    if (arguments.policies) {
        print_policies();
        return REPLAY_DONE;
    }
    if (end_with(arguments.parent))
        return REPLAY_FAILED;
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
    int fd = open_trace(&replay, arguments.path);
    if (fd < 0)
        return REPLAY_BROKEN;
    if (feed_start(&replay.feed, fd) || set_up(&replay))
        return no_memory("");
    if (lacks_mapped_memory(&replay))
        return no_memory(
            " for the tables of mapped memory, half a GiB of addresses, little of which is "
            "used: raise `ulimit -v`, or give --conf expandable_segments:False");
    int code = run(&replay, arguments.progress);
    return code == REPLAY_DONE ? replay_print(&replay) : code;
}
