#include "memory.h"

#include "check.h"
#include "config.h"
#include "context.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <search.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((uintptr_t)4096)
#define ROOM_FACTOR 8
#define ROOM_MOST ((size_t)1 << 40)
#define ROOM_LEAST ((size_t)16 << 30)

/* Some times the capacity: addresses go up until it ends; only then are freed ones used again.
 * (Not as large as can be: qemu's mmap takes time for every page.) */
struct room {
    uintptr_t start, end, next;
    size_t used;
};

static struct room rooms[SIM_DEVICES_MAX];
static void *map;
static unsigned long long last_id;

/* Equal means overlapping: the map finds by any range inside. */
static int memory_compare(const void *left, const void *right)
{
    const struct sim_memory *a = left, *b = right;
    if (a->start + a->bytes <= b->start)
        return -1;
    return b->start + b->bytes <= a->start;
}

struct sim_memory *memory_find(uintptr_t address, size_t bytes)
{
    struct sim_memory key = {.start = address, .bytes = bytes ? bytes : 1};
    struct sim_memory *const *found = tfind(&key, &map, memory_compare);
    return found ? *found : NULL;
}

struct sim_memory *memory_find_base(uintptr_t address)
{
    struct sim_memory *memory = memory_find(address, 1);
    return memory && memory->start == address ? memory : NULL;
}

/* cuMemAddressReserve's. Freed ones stay nobody's, until one of that size is wanted again. */
static struct reservation {
    uintptr_t start, end;
    int freed;
    struct reservation *next;
} * reservations;

static struct reservation *reservation_of(uintptr_t start, size_t bytes)
{
    struct reservation *r = reservations;
    while (r && (start < r->start || start + bytes > r->end))
        r = r->next;
    return r;
}

int memory_is_reserved(uintptr_t start, size_t bytes)
{
    const struct reservation *r = reservation_of(start, bytes);
    return r && !r->freed;
}

uintptr_t memory_reserve_range(size_t bytes, size_t alignment)
{
    size_t more = alignment < SIM_GRANULE ? SIM_GRANULE : alignment;
    for (struct reservation *r = reservations; r; r = r->next)
        if (r->freed && r->end - r->start == bytes && r->start % more == 0) {
            r->freed = 0;
            return r->start;
        }
    struct reservation *reservation = malloc(sizeof *reservation);
    void *start =
        mmap(NULL, bytes + more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!reservation || start == MAP_FAILED) {
        free(reservation);
        return 0;
    }
    uintptr_t at = ((uintptr_t)start + more - 1) & ~(uintptr_t)(more - 1);
    *reservation = (struct reservation){at, at + bytes, 0, reservations};
    reservations = reservation;
    return at;
}

int memory_unreserve_range(uintptr_t start, size_t bytes)
{
    struct reservation *r = reservation_of(start, bytes);
    if (!r || r->freed || r->start != start || r->end != start + bytes)
        return 0;
    return r->freed = 1;
}

int memory_is_device_address(uintptr_t address)
{
    if (reservation_of(address, 1))
        return 1;
    for (int i = 0; i < config()->devices; i++)
        if (address >= rooms[i].start && address < rooms[i].end)
            return 1;
    /* The smallest addresses are nobody's memory. */
    return address < PAGE;
}

int memory_is_mapped(uintptr_t start, size_t bytes, int dying_too)
{
    uintptr_t end = start + bytes;
    while (start < end) {
        const struct sim_memory *memory = memory_find(start, 1);
        if (!memory)
            return !memory_is_device_address(start);
        if (memory->dying && !dying_too)
            return 0;
        if (memory->kind == MEMORY_MAPPED && !memory->accessible)
            return 0;
        start = memory->start + memory->bytes;
    }
    return 1;
}

static struct room *room_of(int device)
{
    struct room *room = &rooms[device];
    if (room->start)
        return room;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    size_t wanted = config()->capacity * ROOM_FACTOR;
    wanted = wanted > ROOM_MOST ? ROOM_MOST : wanted < ROOM_LEAST ? ROOM_LEAST : wanted;
    for (size_t bytes = wanted; bytes > config()->capacity; bytes /= 2) {
        void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (start == MAP_FAILED)
            continue;
        madvise(start, bytes, MADV_DONTDUMP);
        room->start = ((uintptr_t)start + SIM_GRANULE - 1) & ~(uintptr_t)(SIM_GRANULE - 1);
        room->end = (uintptr_t)start + bytes;
        room->next = room->start;
        return room;
    }
    return NULL;
}

static uintptr_t room_take(struct room *room, size_t bytes, size_t alignment)
{
    uintptr_t at = (room->next + alignment - 1) & ~(uintptr_t)(alignment - 1);
    for (int wrapped = 0; bytes <= room->end - room->start;) {
        if (at + bytes > room->end) {
            if (wrapped++)
                return 0;
            at = room->start;
            continue;
        }
        const struct sim_memory *taken = memory_find(at, bytes);
        if (!taken) {
            room->next = at + bytes;
            return at;
        }
        at = (taken->start + taken->bytes + alignment - 1) & ~(uintptr_t)(alignment - 1);
    }
    return 0;
}

uintptr_t memory_reserve(int device, size_t bytes, size_t alignment)
{
    struct room *room = room_of(device);
    return room ? room_take(room, bytes, alignment < SIM_GRANULE ? SIM_GRANULE : alignment) : 0;
}

#define PROCESSES 256

/* What all processes have, by device, and the most that they had, in a file that they share; and what
 * each has, so that it ends with the process. */
static struct taken {
    _Atomic size_t now[SIM_DEVICES_MAX], peak[SIM_DEVICES_MAX];
    struct process {
        _Atomic int pid; /* 0: free */
        _Atomic size_t has[SIM_DEVICES_MAX];
    } process[PROCESSES + 1]; /* the last one: of those that found none */
} alone, *everybodys = &alone;
static struct process *own = &alone.process[PROCESSES];

static void share(void)
{
    int file = config()->shared ? open(config()->shared, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (file < 0)
        return;
    void *memory = ftruncate(file, sizeof alone)
                       ? MAP_FAILED
                       : mmap(NULL, sizeof alone, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED)
        return;
    everybodys = memory;
    own = &everybodys->process[PROCESSES];
    for (int i = 0, none = 0; i < PROCESSES; i++, none = 0)
        if (atomic_compare_exchange_strong(&everybodys->process[i].pid, &none, getpid())) {
            own = &everybodys->process[i];
            break;
        }
}

/* Takes back what killed processes had. Returns whether there were any. */
static int bury(void)
{
    int buried = 0;
    for (int i = 0; everybodys != &alone && i < PROCESSES; i++) {
        struct process *process = &everybodys->process[i];
        int pid = atomic_load(&process->pid);
        if (pid <= 0 || kill(pid, 0) == 0 || errno != ESRCH ||
            !atomic_compare_exchange_strong(&process->pid, &pid, -1))
            continue;
        for (int device = 0; device < SIM_DEVICES_MAX; device++)
            atomic_fetch_sub(&everybodys->now[device], atomic_exchange(&process->has[device], 0));
        atomic_store(&process->pid, 0);
        buried = 1;
    }
    return buried;
}

static _Atomic size_t *taken_of(int device)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, share);
    return &everybodys->now[device];
}

static void note_peak(int device, size_t now)
{
    _Atomic size_t *peak = &everybodys->peak[device];
    size_t most = atomic_load(peak);
    while (now > most && !atomic_compare_exchange_weak(peak, &most, now))
        ;
}

int memory_charge(int device, size_t bytes)
{
    _Atomic size_t *taken = taken_of(device);
    size_t now = atomic_load(taken);
    while (bytes > config()->capacity - now ||
           !atomic_compare_exchange_weak(taken, &now, now + bytes)) {
        if (bytes > config()->capacity - now && !bury())
            return 0;
        now = atomic_load(taken);
    }
    note_peak(device, now + bytes);
    atomic_fetch_add(&own->has[device], bytes);
    rooms[device].used += bytes;
    return 1;
}

void memory_discharge(int device, size_t bytes)
{
    _Atomic size_t *taken = taken_of(device);
    rooms[device].used -= bytes;
    atomic_fetch_sub(&own->has[device], bytes);
    atomic_fetch_sub(taken, bytes);
}

size_t memory_used(int device)
{
    const _Atomic size_t *taken = taken_of(device);
    bury();
    return atomic_load(taken);
}

/* What a process has ends with it. */
__attribute__((destructor)) static void leave(void)
{
    for (int device = 0; device < SIM_DEVICES_MAX && everybodys != &alone; device++)
        memory_discharge(device, rooms[device].used);
    atomic_store(&own->pid, 0);
}

static void memory_add(struct sim_memory *memory)
{
    memory->id = ++last_id;
    if (!tsearch(memory, &map, memory_compare))
        abort();
    if (!memory->context)
        return;
    memory->next = memory->context->memories;
    if (memory->next)
        memory->next->previous = memory;
    memory->context->memories = memory;
}

static size_t pinned;

size_t memory_pinned(void)
{
    return pinned;
}

struct sim_memory *memory_note(struct sim_context *context, enum sim_memory_kind kind,
                               uintptr_t start, size_t bytes)
{
    if (memory_find(start, bytes))
        return NULL;
    struct sim_memory *memory = calloc(1, sizeof(*memory));
    if (!memory)
        abort();
    memory->start = start;
    memory->bytes = bytes;
    memory->kind = kind;
    memory->context = context;
    memory->device = context ? context->device : 0;
    memory_add(memory);
    pinned += kind == MEMORY_HOST ? bytes : 0;
    return memory;
}

struct sim_memory *memory_new(struct sim_context *context, int device, enum sim_memory_kind kind,
                              size_t bytes)
{
    struct room *room = room_of(device);
    size_t unit = bytes >= SIM_SMALL_LIMIT ? SIM_GRANULE : SIM_SMALL_UNIT;
    size_t charged = (bytes + unit - 1) & ~(unit - 1);
    if (!room || charged < bytes || !memory_charge(device, charged))
        return NULL;
    uintptr_t start = room_take(room, charged, unit);
    if (!start) {
        memory_discharge(device, charged);
        return NULL;
    }
    struct sim_memory *memory = memory_note(context, kind, start, bytes);
    memory->charged = charged;
    memory->device = device;
    return memory;
}

/* Whole pages nobody else lives in go back to the host. */
static void pages_drop(uintptr_t start, uintptr_t end)
{
    uintptr_t first = start & ~(PAGE - 1), last = (end + PAGE - 1) & ~(PAGE - 1);
    if (first < start && memory_find(first, start - first))
        first += PAGE;
    if (last > end && memory_find(end, last - end))
        last -= PAGE;
    if (first < last)
        madvise((void *)first, last - first, MADV_DONTNEED);
}

void memory_release(struct sim_memory *memory)
{
    check_release(memory);
    tdelete(memory, &map, memory_compare);
    if (memory->next)
        memory->next->previous = memory->previous;
    if (memory->previous)
        memory->previous->next = memory->next;
    else if (memory->context)
        memory->context->memories = memory->next;
    if (memory->kind == MEMORY_HOST) {
        pinned -= memory->bytes;
        free((void *)memory->start);
    } else if (memory->kind != MEMORY_REGISTERED && memory->kind != MEMORY_MAPPED)
        pages_drop(memory->start, memory->start + memory->bytes);
    memory_discharge(memory->device, memory->charged);
    free(memory);
}

struct visit {
    void (*act)(struct sim_memory *, void *);
    void *data;
};

static void visit(const void *node, VISIT order, void *closure)
{
    const struct visit *each = closure;
    if (order == postorder || order == leaf)
        each->act(*(struct sim_memory *const *)node, each->data);
}

void memory_for_each(void (*act)(struct sim_memory *memory, void *data), void *data)
{
    struct visit each = {act, data};
    twalk_r(map, visit, &each);
}

void memory_release_context(struct sim_context *context)
{
    for (struct sim_memory *memory = context->memories, *next; memory; memory = next) {
        next = memory->next;
        memory_release(memory);
    }
}
