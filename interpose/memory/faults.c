#include "interpose/memory/faults.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "interpose/call_sites/stack.h"
#include "interpose/context/device_ops.h"
#include "interpose/process/process.h"

/* A block that was freed. */
struct freed {
    uint64_t address, bytes;
    uint32_t site, freed_site;
};
#define FREED_MOST 4096

static struct WIPED freed_blocks {
    pthread_mutex_t lock;
    uint64_t count; /* so far; the last FREED_MOST are known */
    struct freed freed[FREED_MOST];
} freed_blocks;
static const struct wiped wiped WIPED_ENTRY = {&freed_blocks, sizeof freed_blocks};

int faults_look(uint64_t address, struct block_place *place)
{
    *place = (struct block_place){0};
    process_inside++;
    int code = domain_find(process.domain, address, place);
    process_inside--;
    return code;
}

/* The call site of the program; 0 while the library does work of its own. */
static uint32_t here(void)
{
    return process.sites && !process_inside ? call_sites_now(0, SITE_DEVICES) : 0;
}

void faults_remember(uint64_t address)
{
    struct block_place place;
    if (faults_look(address, &place) || place.segment_address + place.offset != address)
        return;
    int looks = process.config.sites != SITES_BY_BYTES; /* a look at each free takes long */
    const struct freed freed = {address, place.requested_bytes, place.site, looks ? here() : 0};
    process_inside++;
    pthread_mutex_lock(&freed_blocks.lock);
    freed_blocks.freed[freed_blocks.count++ % FREED_MOST] = freed;
    pthread_mutex_unlock(&freed_blocks.lock);
    process_inside--;
}

/* The block that was freed last of those that held `address`; 0 bytes if that is not known. */
static struct freed last_freed_at(uint64_t address)
{
    struct freed found = {0};
    process_inside++;
    pthread_mutex_lock(&freed_blocks.lock);
    uint64_t count = freed_blocks.count, least = count > FREED_MOST ? count - FREED_MOST : 0;
    for (uint64_t i = count; i > least && !found.bytes; i--) {
        const struct freed *freed = &freed_blocks.freed[(i - 1) % FREED_MOST];
        if (address - freed->address < freed->bytes)
            found = *freed;
    }
    pthread_mutex_unlock(&freed_blocks.lock);
    process_inside--;
    return found;
}

static void log_fault(const struct page_fault *fault, const char *name)
{
    char text[192];
    snprintf(text, sizeof text, "fault: %s at 0x%llx, %s", name, (unsigned long long)fault->address,
             *fault->call ? fault->call : "found at a free");
    process_log(text);
}

/* Counts a fault; the first ones get a place in the page. Its time, which is set last, makes it
 * whole. */
static void note(const struct page_fault *fault)
{
    static const char *const names[FAULT_KINDS] = {
#define X(name, meaning) #name,
        FAULT_LIST(X)
#undef X
    };
    struct page *page = process.page;
    uint64_t n = atomic_fetch_add(&page->faults.noted, 1);
    atomic_fetch_add(&page->faults.count[fault->kind], 1);
    if (n < PAGE_FAULTS) {
        struct page_fault *place = &page->faults.fault[n];
        memcpy((char *)place + sizeof place->time_ns, (const char *)fault + sizeof fault->time_ns,
               sizeof *place - sizeof place->time_ns);
        atomic_store(&place->time_ns, driver_ops.now_ns() - page->start_monotonic_ns);
    }
    log_fault(fault, names[fault->kind]);
}

static struct page_fault begin(enum fault_kind kind, const char *call, uint64_t address,
                               uint64_t bytes)
{
    struct page_fault fault = {.kind = kind, .address = address, .bytes = bytes, .site = here()};
    snprintf(fault.call, sizeof fault.call, "%s", call);
    return fault;
}

static void put_block(struct page_fault *fault, const struct block_place *place)
{
    fault->device = (uint64_t)place->device + 1;
    fault->block_address = place->segment_address + place->offset;
    fault->block_bytes = place->requested_bytes;
    fault->block_site = place->site;
}

/* Fills in the block that holds the fault's address, or held it last. */
static void find_block(struct page_fault *fault)
{
    struct block_place place;
    if (faults_look(fault->address, &place) == 0) {
        put_block(fault, &place);
        return;
    }
    const struct freed freed = last_freed_at(fault->address);
    fault->block_address = freed.address;
    fault->block_bytes = freed.bytes;
    fault->block_site = freed.site;
    fault->freed_site = freed.freed_site;
}

void faults_note_range(enum fault_kind kind, const char *call, uint64_t address, uint64_t bytes,
                       uint64_t past)
{
    struct page_fault fault = begin(kind, call, address, bytes);
    fault.past_bytes = past;
    find_block(&fault);
    note(&fault);
}

void faults_note_overrun(const struct block_place *place, uint64_t address, uint64_t bytes)
{
    struct page_fault fault = begin(FAULT_overrun, "", address, bytes);
    put_block(&fault, place);
    note(&fault);
}

void faults_note_free(const char *call, uint64_t address, int in_cache)
{
    struct page_fault fault = begin(FAULT_foreign_free, call, address, 0);
    if (in_cache) {
        find_block(&fault);
        fault.kind = fault.device ? FAULT_interior_free : FAULT_double_free;
    }
    note(&fault);
}
