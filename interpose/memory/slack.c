/* Each block whose slack is filled has an entry. The free takes it, waits for the device as the native
 * free does, and reads the slack on a stream of our own. Reads cost a copy, and neither wait for
 * other streams nor hold them up. */
#include "interpose/memory/slack.h"

#include <pthread.h>
#include <time.h>

#include "allocator/base/map.h"
#include "allocator/base/slab.h"
#include "interpose/context/capture.h"
#include "interpose/context/device_ops.h"
#include "interpose/memory/faults.h"
#include "interpose/process/process.h"

#define PATTERN 0xA5
#define SLACK_MOST 4096 /* bytes looked at behind a request */
#define WAIT_NS UINT64_C(2000000000)

struct filled {
    struct map_node node; /* key: the block's address */
    struct context *context;
    uint64_t begin; /* of the slack */
    uint32_t bytes, is_told;
};

static struct WIPED slack {
    pthread_mutex_t lock;
    struct map known; /* struct filled */
    struct slab nodes;
} slack;
static const struct wiped wiped WIPED_ENTRY = {&slack, sizeof slack};

static void lock(void)
{
    process_inside++;
    pthread_mutex_lock(&slack.lock);
}

static void unlock(void)
{
    pthread_mutex_unlock(&slack.lock);
    process_inside--;
}

static struct filled *entry(uint64_t address)
{
    slack.nodes.item_bytes = sizeof(struct filled);
    struct filled *one = slab_take(&slack.nodes);
    if (one)
        one->node.key = address;
    return one;
}

/* Takes the entry of a block away. Returns 1 if it had one. */
static int take(uint64_t address, struct filled *taken)
{
    lock();
    struct filled *one = (struct filled *)map_remove(&slack.known, address);
    if (one) {
        *taken = *one;
        slab_give(&slack.nodes, one);
    }
    unlock();
    return one != NULL;
}

void slack_fill(struct context *context, uint64_t address)
{
    struct block_place place;
    struct filled before;
    if (!process.config.options.slack || !process_serving() || process_inside || capture_active())
        return;
    take(address, &before); /* of a block that was lost with its context */
    if (faults_look(address, &place) || place.requested_bytes >= place.size_bytes)
        return;
    uint64_t bytes = place.size_bytes - place.requested_bytes;
    bytes = bytes < SLACK_MOST ? bytes : SLACK_MOST;
    process_inside++;
    int code = driver_fill(context, address + place.requested_bytes, bytes, PATTERN * 0x01010101U,
                           WAIT_NS);
    process_inside--;
    if (code)
        return;
    lock();
    struct filled *one = entry(address);
    if (one) {
        one->context = context;
        one->begin = address + place.requested_bytes;
        one->bytes = (uint32_t)bytes;
        if (map_insert(&slack.known, &one->node))
            slab_give(&slack.nodes, one);
    }
    unlock();
}

#define PIECE 256 /* read at once: the stack may be small */

/* Which bytes of the slack are no longer the pattern: from *first on, *bytes of them. Returns 0, or -1
 * if the slack could not be read. */
static int read_slack(const struct filled *one, uint64_t *first, uint64_t *bytes)
{
    unsigned char found[PIECE];
    *bytes = 0;
    for (uint64_t at = one->begin, end = at + one->bytes; at < end; at += PIECE) {
        uint64_t count = end - at < PIECE ? end - at : PIECE;
        process_inside++;
        int code = driver_read(one->context, at, count, found);
        process_inside--;
        if (code)
            return -1;
        for (uint64_t i = 0; i < count; i++)
            if (found[i] != PATTERN) {
                *first = *bytes ? *first : at + i;
                *bytes = at + i + 1 - *first;
            }
    }
    return 0;
}

/* Returns 1 if the slack was written, which becomes a fault. */
static int look(const struct filled *one)
{
    struct block_place place;
    uint64_t first = 0, bytes;
    uint64_t address = one->node.key;
    if (faults_look(address, &place) || address + place.requested_bytes != one->begin ||
        read_slack(one, &first, &bytes) || !bytes)
        return 0;
    faults_note_overrun(&place, first, bytes);
    return 1;
}

void slack_check(uint64_t address, int wait)
{
    struct filled one;
    if (!process.config.options.slack || process_inside || !take(address, &one) || one.is_told ||
        capture_active())
        return;
    process_inside++;
    int code = wait ? driver_ops.synchronize(one.context) : 0;
    process_inside--;
    if (code == 0)
        look(&one);
}

static int look_at(const struct map_node *node, const void *unused)
{
    struct filled *one = (struct filled *)(uintptr_t)node;
    (void)unused;
    one->is_told |= (uint32_t)look(one);
    return 0;
}

/* Frees wait meanwhile. A thread that the exit has interrupted may hold the lock for ever. */
void slack_check_all(void)
{
    struct timespec limit;
    if (!process.config.options.slack || process_inside || capture_active())
        return;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec++;
    process_inside++;
    if (pthread_mutex_timedlock(&slack.lock, &limit) == 0) {
        map_any(&slack.known, look_at, NULL);
        pthread_mutex_unlock(&slack.lock);
    }
    process_inside--;
}
