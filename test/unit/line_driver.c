/* The allocator by lines, for the model tests: reads `options TEXT`, `capacity BYTES` first, then
 * `m BYTES` (malloc), `f N` (free what malloc number N gave), `e` (empty the cache), `o BYTES` (are
 * other processes'), `r` (give back what was idle), `x CALL N` (the N-th next call of the device's
 * CALL fails), and answers each with `CODE ADDRESS` and all statistics. With mapped memory there
 * follows what the device has, how often a call failed as told, and each block. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator.h"
#include "allocator/check.h"
#include "allocator/pool/arena.h"
#include "allocator/state/domain.h"
#include "fake_device.h"

static struct device_stats stats;
static struct fake_device device;
static struct domain *domain;
static struct allocator *a;

static void complain(void *context, const char *message)
{
    (void)context;
    fprintf(stderr, "%s\n", message);
    exit(2);
}

static void answer(int code, uint64_t address)
{
    printf("%d %" PRIu64, code, address);
    for (int kind = 0; kind < STAT_KINDS; kind++) {
        const struct pool_stat *stat = &stats.stat[kind];
        for (int pool = 0; pool < STAT_POOLS; pool++)
            printf(" %" PRIu64 " %" PRIu64 " %" PRIu64, (uint64_t)stat->allocated[pool],
                   (uint64_t)stat->freed[pool], (uint64_t)stat->peak[pool]);
        printf(" %" PRIu64, (uint64_t)stat->peak[STAT_POOLS]);
    }
    static const enum counter_kind counters[] = {COUNTER_num_hits,
                                                 COUNTER_num_alloc_retries,
                                                 COUNTER_num_ooms,
                                                 COUNTER_num_device_alloc,
                                                 COUNTER_num_device_free,
                                                 COUNTER_reusable_bytes,
                                                 COUNTER_largest_allocatable_bytes};
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        printf(" %" PRIu64, stats_get(&stats, counters[i]));
    printf(" %d", allocator_is_valid(a));
}

static uint64_t rows[1 << 16], row_count;

static void add_row(void *context, const struct snapshot_block *block)
{
    const uint64_t row[] = {block->address, block->size_bytes, block->requested_bytes, block->state,
                            block->pool};
    (void)context;
    memcpy(&rows[row_count], row, sizeof row);
    row_count += sizeof row / sizeof *row;
}

static void show(void)
{
    int fired = device.failing && device.calls[device.failing] >= device.failing_number;
    printf(" %" PRIu64 " %" PRIu64 " %d", device.used, device.most_used, fired);
    fake_print(&device);
    row_count = 0;
    domain_walk(domain, add_row, NULL);
    for (uint64_t i = 0; i < row_count; i++)
        printf(" %" PRIu64, rows[i]);
}

static void step(char op, uint64_t n, uint64_t number)
{
    static uint64_t addresses[1000000], mallocs;
    uint64_t address = 0;
    int code = 0;
    if (op == 'm') {
        code = allocator_malloc(a, n, &address);
        addresses[mallocs++] = address;
    } else if (op == 'f') {
        code = domain_free(domain, addresses[n], FREED_NATIVE);
        if (device.instant)
            domain_poll(domain);
    } else if (op == 'e') {
        address = domain_empty_cache(domain, 0);
    } else if (op == 'r') {
        domain_return_idle(domain);
    } else if (op == 'o') {
        device.others = n;
    } else if (op == 'x') {
        device.failing = (enum fake_call)n;
        device.failing_number = device.calls[n] + number;
    }
    answer(code, address);
}

int main(void)
{
    struct options options;
    char line[512], op;
    uint64_t n, number;
    options_default(&options);
    options.expandable = EXPANDABLE_FALSE;
    fake_init(&device, UINT64_MAX);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "options ", 8)) {
            options_parse(&options, line + 8, OPTIONS_ALL, complain, NULL);
        } else if (!strncmp(line, "capacity ", 9)) {
            device.capacity = strtoull(line + 9, NULL, 10);
        } else {
            if (!a) {
                if (options.expandable == EXPANDABLE_FALSE)
                    options.page_bytes = BLOCK_GRAIN; /* the model has PyTorch's rules */
                domain = domain_create(&options);
                a = allocator_create(domain, &fake_ops, &device, 1, 0, &stats, device.capacity);
            }
            n = number = 0;
            if (sscanf(line, "%c %" SCNu64 " %" SCNu64, &op, &n, &number) < 1)
                return 1;
            step(op, n, number);
            if (allocator_maps(a))
                show();
            puts("");
        }
    }
    return 0;
}
