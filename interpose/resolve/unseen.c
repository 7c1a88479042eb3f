/* Each look runs inside a walk over the loaded objects: the lock of the walk guards what is kept
 * here, and nothing is loaded or unloaded meanwhile.
 *
 * Ways past us:
 * - an object whose calls are bound past us, and whose table cannot be written (bindings.c);
 * - a second libcuda beside the one that we stand in front of: its functions have other addresses;
 * - a libcuda in another namespace (dlmopen);
 * - a function that was looked up before the program was relocated.
 *
 * A load begins when dlopen is called. It is over when its thread calls us from outside that call,
 * when the list of objects has changed, or after LOADING_NS (an object that was there already). */
#include "interpose/resolve/unseen.h"

#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "interpose/process/process.h"
#include "interpose/resolve/bindings.h"
#include "interpose/resolve/elf_tables.h"
#include "interpose/resolve/real_driver.h"

#define LOADING_NS UINT64_C(1000000000)

/* Of the calling thread: the stack of its outermost load under way (0: none), where that load
 * returns to, and its series. */
static _Thread_local struct {
    uintptr_t frame;
    uintptr_t caller;
    unsigned series;
} loading;

/* Loads under way in all threads. A new series begins when those of the last one count as over. */
static struct {
    _Atomic int count;
    _Atomic unsigned series;
    _Atomic uint64_t begun_ns;
    _Atomic unsigned long long changes; /* of the list of objects, before the last load */
} loads;

static _Atomic uintptr_t early;

/* What the last look has seen. */
static struct {
    unsigned long long changes;
    _Atomic uint64_t led_back;   /* entries that the last look knew */
    _Atomic int is_taken, found; /* the first way that was found; found: `way` is written */
    char way[200];
} seen;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* What the return address of the load would be if it were still under way; 0: unknown. A program
 * may have unmapped the stack, so the kernel reads it. */
static uintptr_t return_address(uintptr_t frame)
{
    uintptr_t address = 0;
#if defined(__x86_64__) /* elsewhere the called function keeps it in a register at first */
    struct iovec to = {&address, sizeof address};
    struct iovec from = {(void *)(frame - sizeof address), sizeof address};
    if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != sizeof address)
        return 0;
#else
    (void)frame;
#endif
    return address;
}

/* Is this thread, with this stack, within the load that it began? The stack grows down, and the
 * next call from where it began would have put another address there. */
static int is_within(uintptr_t frame)
{
    return frame < loading.frame &&
           (!loading.caller || return_address(loading.frame) == loading.caller);
}

static void look_at_own_load(uintptr_t frame)
{
    if (!loading.frame || is_within(frame))
        return;
    loading.frame = 0;
    if (loading.series == atomic_load(&loads.series))
        atomic_fetch_sub(&loads.count, 1);
}

static int count_changes(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    *(unsigned long long *)data = info->dlpi_adds + info->dlpi_subs;
    return 1;
}

void unseen_load_begins(const void *frame)
{
    unsigned long long changes = 0;
    int error = errno;
    look_at_own_load((uintptr_t)frame);
    atomic_store(&loads.begun_ns, now_ns());
    if (!loading.frame) { /* else it is within a load of this thread */
        dl_iterate_phdr(count_changes, &changes);
        atomic_store(&loads.changes, changes);
        loading.frame = (uintptr_t)frame;
        loading.caller = return_address(loading.frame);
        loading.series = atomic_load(&loads.series);
        atomic_fetch_add(&loads.count, 1);
    }
    errno = error;
}

static int is_libcuda(const char *path)
{
    static const char name[] = "libcuda.so";
    const char *file = path ? strrchr(path, '/') : NULL;
    file = file ? file + 1 : path;
    return file && strncmp(file, name, sizeof name - 1) == 0;
}

/* The object behind WSL's libcuda.so.1, which alone calls it. */
static int is_second_stage(const char *path)
{
    const char *file = strrchr(path, '/');
    return file && strcmp(file, "/libcuda.so.1.1") == 0;
}

/* Does the object look like libcuda, by its name or by functions that no tool stands in for? */
static int is_driver(const struct object *object, const char *path)
{
    const struct tables tables = elf_tables(object);
    return is_libcuda(path) || is_libcuda(tables.soname) ||
           (elf_find(object, &tables, "cuInit") && elf_find(object, &tables, "cuTexRefCreate") &&
            elf_find(object, &tables, "cuProfilerStop"));
}

static void note_way(const char *path, const char *what)
{
    if (atomic_exchange(&seen.is_taken, 1))
        return;
    snprintf(seen.way, sizeof seen.way, "%s %s", path, what);
    atomic_store(&seen.found, 1);
}

/* The objects of a namespace. glibc chains the namespaces since 2.35. */
struct debug {
    struct r_debug base;
    const struct debug *next;
};

struct walk {
    unsigned long long objects;
    const struct debug *debug; /* of the program */
};

static const struct debug *debug_of(const struct object *program)
{
    for (const ElfW(Dyn) *entry = program->dynamic; entry && entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == DT_DEBUG)
            return (const struct debug *)entry->d_un.d_ptr;
    return NULL;
}

struct state {
    unsigned long long changes;
    int is_consistent; /* the loader changes no list of objects at this moment */
};

static int look_at_state(struct dl_phdr_info *info, size_t size, void *data)
{
    struct state *state = data;
    const struct object program = elf_object(info);
    const struct debug *debug = debug_of(&program);
    (void)size;
    state->changes = info->dlpi_adds + info->dlpi_subs;
    state->is_consistent = !debug || debug->base.r_state == RT_CONSISTENT;
    return 1;
}

/* Once a load has changed the list of objects, what it loads can be looked at. */
static int is_loading(void)
{
    struct state state = {0};
    look_at_own_load((uintptr_t)__builtin_frame_address(0));
    if (atomic_load(&loads.count) <= 0)
        return 0;
    dl_iterate_phdr(look_at_state, &state);
    if ((state.changes == atomic_load(&loads.changes) || !state.is_consistent) &&
        now_ns() - atomic_load(&loads.begun_ns) < LOADING_NS)
        return 1;
    atomic_fetch_add(&loads.series, 1);
    atomic_store(&loads.count, 0);
    return 0;
}

static int look_at_object(struct dl_phdr_info *info, size_t size, void *data)
{
    struct walk *walk = data;
    const struct object object = elf_object(info);
    (void)size;
    if (!walk->objects++)
        walk->debug = debug_of(&object);
    if (!object.dynamic || elf_holds(info, (uintptr_t)look_at_object) ||
        !is_driver(&object, info->dlpi_name))
        return 0;
    const struct tables tables = elf_tables(&object);
    const void *init = elf_find(&object, &tables, "cuInit");
    if (init && !real_is_driver(init) && !is_second_stage(info->dlpi_name))
        note_way(info->dlpi_name, "is a second libcuda");
    return 0;
}

static void look_at_namespaces(const struct debug *debug)
{
    if (!debug || debug->base.r_version < 2)
        return;
    for (debug = debug->next; debug; debug = debug->next)
        for (const struct link_map *object = debug->base.r_map; object; object = object->l_next) {
            const struct object there = {object->l_addr, object->l_ld};
            if (there.dynamic && is_driver(&there, object->l_name))
                note_way(object->l_name, "is in another namespace (dlmopen)");
        }
}

static int look_at_all(struct dl_phdr_info *info, size_t size, void *unused)
{
    struct walk walk = {0};
    unsigned long long changes = info->dlpi_adds + info->dlpi_subs;
    (void)size;
    (void)unused;
    if (changes == seen.changes)
        return 1;
    dl_iterate_phdr(look_at_object, &walk);
    if (info->dlpi_adds - info->dlpi_subs > walk.objects) /* these count all namespaces */
        look_at_namespaces(walk.debug);
    seen.changes = changes;
    return 1;
}

void unseen_note_early(const void *function)
{
    atomic_store(&early, (uintptr_t)function);
}

const char *unseen_way(void)
{
    bindings_look();
    if (atomic_load(&early) && !atomic_load(&seen.found) &&
        real_hook_of((const void *)atomic_load(&early)) >= 0)
        note_way("the program", "looked a function of CUDA up before it was relocated");
    if (bindings_unreached() && !atomic_load(&seen.found))
        note_way(bindings_unreached(), "calls CUDA past us, and its table cannot be written");
    if (real_load() && !atomic_load(&seen.found))
        dl_iterate_phdr(look_at_all, NULL);
    return atomic_load(&seen.found) ? seen.way : NULL;
}

enum lane_sight unseen_look(void)
{
    if (is_loading())
        return SIGHT_LOADING;
    if (unseen_way())
        return SIGHT_PAST;
    uint64_t led_back = atomic_load(&process.page->coverage[COVERAGE_table_entries]);
    return atomic_exchange(&seen.led_back, led_back) == led_back ? SIGHT_CLEAR : SIGHT_MISSED;
}
