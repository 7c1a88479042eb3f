/* glibc's backtrace() walks the stack with libgcc's unwinder, which it loads itself. Frame pointers
 * are not reliable, and a library that needed libgcc_s would keep programs from starting where that
 * is missing. From glibc 2.35 on neither takes a lock. Modules are found by dl_iterate_phdr, whose
 * lock is not held while constructors run (loaded_objects.c). */
#include "interpose/call_sites/stack.h"

#include <errno.h>
#include <execinfo.h>
#include <link.h>

#include "interpose/call_sites/python_stack.h"
#include "interpose/call_sites/sample.h"

#define OWN_FRAMES 10 /* most frames of this library and the CUDA runtime above the program's */
#define OFFSET_BITS 48

extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

void call_sites_start(void)
{
    void *address[2];
    backtrace(address, 2); /* loads the unwinder now, not within a request */
    python_start();
}

struct where {
    uintptr_t address, bias;
    const char *path; /* NULL: not found */
};

static int look_in(struct dl_phdr_info *object, size_t size, void *context)
{
    struct where *where = context;
    (void)size;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type == PT_LOAD &&
            where->address - object->dlpi_addr - part->p_vaddr < part->p_memsz) {
            where->bias = object->dlpi_addr;
            where->path = object->dlpi_name;
            return 1;
        }
    }
    return 0;
}

/* An address as the table of sites stores it: module and offset. */
static uint64_t frame_of(struct sites *sites, void *address)
{
    struct where where = {.address = (uintptr_t)address};
    uint64_t module = 0;
    dl_iterate_phdr(look_in, &where);
    if (where.path) {
        const char *path = where.path[0] ? where.path : process.page->exe;
        module = sites_module(sites, path, where.bias);
    }
    uint64_t offset = where.address - (module ? where.bias : 0);
    return module << OFFSET_BITS | (offset & ((UINT64_C(1) << OFFSET_BITS) - 1));
}

static uint64_t mixed(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static void fill(struct site *site, void **address, int count, const struct python_frames *frames)
{
    python_text(frames, site->python, sizeof site->python);
    for (int i = 0; i < count; i++)
        site->frame[i] = frame_of(process.sites, address[i]);
    site->frames = (uint64_t)count;
    atomic_store_explicit(&site->ready, 1, memory_order_release);
}

/* The number of frames up to the last one of this library. A request that goes on into the runtime
 * comes back to us and is the same site. */
static int count_own(void **address, int count)
{
    int own = 0;
    for (int i = 0; i < count; i++)
        if ((const char *)address[i] >= __ehdr_start && (const char *)address[i] < _end)
            own = i + 1;
    return own;
}

static uint32_t look(unsigned kind, unsigned device)
{
    void *address[OWN_FRAMES + SITE_FRAMES], **first;
    struct python_frames frames;
    int is_new, count = backtrace(address, OWN_FRAMES + SITE_FRAMES);
    first = address + count_own(address, count < OWN_FRAMES ? count : OWN_FRAMES);
    count -= (int)(first - address);
    count = count < SITE_FRAMES ? count : SITE_FRAMES;
    python_frames(&frames);
    uint64_t hash = mixed(1 + kind, device);
    for (int i = 0; i < count; i++)
        hash = mixed(hash, (uintptr_t)first[i]);
    for (int i = 0; i < frames.count; i++)
        hash = mixed(mixed(hash, (uintptr_t)frames.frame[i].code), (uint64_t)frames.frame[i].line);
    uint32_t place = sites_find(process.sites, hash ? hash : 1, &is_new);
    if (is_new) {
        struct site *site = &process.sites->site[place - 1];
        site->kind = kind;
        site->device = device;
        fill(site, first, count, &frames);
    }
    return place;
}

uint32_t call_sites_now(unsigned kind, unsigned device)
{
    int error = errno;
    uint32_t place = look(kind, device);
    errno = error;
    return place;
}

uint32_t call_sites_find(unsigned kind, unsigned device, uint64_t bytes)
{
    unsigned rate;
    if (!sample_takes(bytes, &rate))
        return 0;
    uint64_t begun = sample_clock();
    uint32_t place = call_sites_now(kind, device);
    sample_taken(begun);
    return site_mark(place, rate);
}

int call_sites_look(unsigned device, uint64_t bytes)
{
    uint32_t mark = call_sites_find(0, device, bytes);
    domain_asked_at(mark);
    return mark != 0;
}

void call_sites_count(uint32_t mark, unsigned device, uint64_t bytes, int live)
{
    if (device < process.page->device_count) {
        const struct pool_stat *stat = page_device(process.page, device)->stats.stat;
        sites_note_peak(process.sites, device,
                        stat_get(&stat[STAT_allocated_bytes].peak[STAT_POOLS]));
    }
    sites_count(process.sites, mark, bytes, live);
}
