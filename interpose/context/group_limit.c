#include "interpose/context/group_limit.h"

#include "allocator/base/policy.h"
#include "interpose/context/context.h"
#include "interpose/process/private_files.h"
#include "interpose/process/process.h"
#include "stats/os/clock.h"
#include "stats/os/pause.h"
#include "stats/page/group.h"

/* The lock is a leaf, and held for no call that may wait. */
static struct WIPED groups {
    _Atomic int holds[PEER_DEVICES]; /* the limit is in force */
    int begun[PEER_DEVICES];         /* under the lock of the device's primary context */
    pthread_mutex_t lock;
    struct group of[PEER_DEVICES];
} groups;
static const struct wiped wiped WIPED_ENTRY = {&groups, sizeof groups};

static struct group *group_of(const struct context *context)
{
    unsigned device = (unsigned)context->device;
    return device < PEER_DEVICES &&
                   atomic_load_explicit(&groups.holds[device], memory_order_acquire)
               ? &groups.of[device]
               : NULL;
}

struct opening {
    struct group *group;
    const char *uuid, *problem;
};

static void open_books(void *what)
{
    struct opening *opening = what;
    if (!process.page->group) {
        process.page->group = group_number(process.config.group);
        PAGE_TELL(process.page, group);
    }
    opening->problem = group_open(opening->group, process.page, opening->uuid, process.page->group);
}

/* Only this process's part in the limit ends. Its line stays, for others. */
static void step_aside(unsigned device, const char *problem)
{
    if (!atomic_exchange(&groups.holds[device], 0) && groups.of[device].books)
        return; /* another thread does so */
    stats_set(&page_device(process.page, device)->stats, COUNTER_group_limit_bytes, 0);
    page_config_in_force(process.page, "group_limit_mb", "off", NULL);
    process_warn("device %u: the limit of the group does not hold here: %s", device, problem);
}

void group_limit_begin(const struct context *context)
{
    uint64_t limit = process.config.options.group_limit;
    unsigned device = (unsigned)context->device;
    if (!limit || device >= PEER_DEVICES || groups.begun[device]++)
        return;
    struct group *group = &groups.of[device];
    struct opening opening = {group, context->row->uuid, NULL};
    group->limit = limit;
    files_run(open_books, &opening);
    if (opening.problem) {
        step_aside(device, opening.problem);
        return;
    }
    stats_set(&context->row->stats, COUNTER_group_limit_bytes, limit);
    atomic_store(&groups.holds[device], 1);
}

struct burying {
    const struct group *group;
    int buried;
};

static void bury(void *what)
{
    struct burying *burying = what;
    burying->buried = group_bury(burying->group);
}

static int bury_dead(const struct context *context, const struct group *group)
{
    struct burying burying = {group, 0};
    files_run(bury, &burying);
    if (burying.buried < 0)
        step_aside((unsigned)context->device, "its books were removed or replaced");
    return burying.buried;
}

/* Processes that claim at once wait for different times, or they would see each other for ever. */
static void back_off(const struct group *group, unsigned round)
{
    uint64_t random = (clock_ns(CLOCK_MONOTONIC) + group->own) * UINT64_C(0x9e3779b97f4a7c15);
    pause_ns((long)(1000 + (random >> 40) % ((uint64_t)2000 << (round < 8 ? round : 8))));
}

/* A claim of a process that is stopped stays pending: it counts as what that process has. */
static enum group_answer claim(struct group *group, uint64_t bytes)
{
    uint64_t begin = clock_ns(CLOCK_MONOTONIC);
    for (unsigned round = 0;; round++) {
        pthread_mutex_lock(&groups.lock);
        enum group_answer answer = group_claim(group, bytes);
        pthread_mutex_unlock(&groups.lock);
        if (answer != GROUP_BUSY || clock_ns(CLOCK_MONOTONIC) - begin > policy.moment_wait_ns)
            return answer;
        back_off(group, round);
    }
}

int group_limit_claim(const struct context *context, _Atomic uint64_t *count, uint64_t bytes)
{
    struct group *group = group_of(context);
    if (!group)
        return 1;
    enum group_answer answer = claim(group, bytes);
    if ((answer == GROUP_FULL || answer == GROUP_BUSY) && bytes <= group->limit) {
        int buried = bury_dead(context, group);
        answer = buried > 0 ? claim(group, bytes) : buried < 0 ? GROUP_DAMAGED : answer;
    }
    if (answer == GROUP_HAS)
        atomic_fetch_add(count, bytes);
    else if (answer == GROUP_DAMAGED)
        step_aside((unsigned)context->device, "its books are damaged");
    return answer == GROUP_HAS || answer == GROUP_DAMAGED;
}

void group_limit_give(const struct context *context, _Atomic uint64_t *count, uint64_t bytes)
{
    uint64_t had = atomic_load(count), less;
    if (!had)
        return; /* nothing was claimed, and the slot may be another context's */
    struct group *group = group_of(context); /* not later: at 0 the slot is free */
    do
        less = bytes < had ? bytes : had; /* what was taken without a claim is not in the books */
    while (!atomic_compare_exchange_weak(count, &had, had - less));
    if (!group || !less)
        return;
    pthread_mutex_lock(&groups.lock);
    group_give(group, less);
    pthread_mutex_unlock(&groups.lock);
}

uint64_t group_limit_room(const struct context *context, int bury)
{
    const struct group *group = group_of(context);
    if (!group || (bury && bury_dead(context, group) < 0))
        return UINT64_MAX;
    pthread_mutex_lock(&groups.lock);
    uint64_t has = group_bytes(group);
    pthread_mutex_unlock(&groups.lock);
    return has > group->limit ? 0 : group->limit - has;
}
