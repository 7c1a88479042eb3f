/* Finds the real functions. Every thread fills the table with the same values, so it needs no lock,
 * and no failure is permanent. */
#include "interpose/resolve/real_driver.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <string.h>

#include "interpose/resolve/elf_tables.h"

/* Read by dlsym_*.S too. */
void *real_dlsym __attribute__((visibility("hidden")));

#if defined(__x86_64__)
static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", NULL};
static const char *const open_versions[] = {"GLIBC_2.34", "GLIBC_2.3.4", "GLIBC_2.2.5", NULL};
#else
static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", NULL};
static const char *const open_versions[] = {"GLIBC_2.34", "GLIBC_2.17", NULL};
#endif

/* Stands in for functions that this driver lacks. Callers pass arguments, which it ignores. */
static CUresult missing(void)
{
    return CUDA_ERROR_NOT_FOUND;
}

struct real_driver real_table = {
#define X(name) .name = (__typeof__(&name))(void *)missing,
    HOOK_LIST(X) CALL_LIST(X)
#undef X
};
_Atomic int real_loaded;

/* Set by the linker: the range of our code. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char etext[] __attribute__((visibility("hidden")));

/* The hooked functions come first. */
static const struct function {
    const char *name;
    size_t offset;
} functions[] = {
#define X(function) {#function, offsetof(struct real_driver, function)},
    HOOK_LIST(X) CALL_LIST(X)
#undef X
};
#define FUNCTIONS (sizeof functions / sizeof *functions)
#define X(function) +1
enum { HOOKS = 0 HOOK_LIST(X) };
#undef X

/* libcuda's own functions. A tool may stand in for libcuda by answering its dlopen (Nsight
 * Compute). Then the table holds the tool's functions, as the program would get them, but the
 * tool's cuGetProcAddress returns libcuda's. */
static void *own[FUNCTIONS];

/* The address ranges of the table's object and of libcuda. */
static struct range {
    _Atomic uintptr_t begin, end;
} drivers[2];

REAL_NOT_SANITIZED void *real_dlsym_find(void)
{
    void *found = __atomic_load_n(&real_dlsym, __ATOMIC_ACQUIRE);
    for (unsigned i = 0; versions[i] && !found; i++)
        found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    __atomic_store_n(&real_dlsym, found, __ATOMIC_RELEASE);
    return found;
}

void *real_dlsym_call(void *handle, const char *name)
{
    void *function = real_dlsym_find();
    return function ? ((void *(*)(void *, const char *))function)(handle, name) : NULL;
}

/* An interposer behind us may define it. The version is for one whose dlsym answers with ours. */
void *real_open_find(int in_namespace)
{
    static void *opens[2];
    const char *name = in_namespace ? "dlmopen" : "dlopen";
    void *found = __atomic_load_n(&opens[in_namespace], __ATOMIC_ACQUIRE);
    if (!found)
        found = real_dlsym_call(RTLD_NEXT, name);
    for (unsigned i = 0; open_versions[i] && (!found || real_is_ours(found)); i++)
        found = dlvsym(RTLD_NEXT, name, open_versions[i]);
    __atomic_store_n(&opens[in_namespace], found, __ATOMIC_RELEASE);
    return found;
}

/* A handle of an object that is loaded already, as the program gets it: a tool before us may answer
 * its dlopen. */
static void *handle_of(const char *path)
{
    void *(*open)(const char *, int) = (void *(*)(const char *, int))real_open_find(0);
    void *program = open ? open(NULL, RTLD_LAZY) : NULL;
    void *first = program ? real_dlsym_call(program, "dlopen") : NULL;
    if (first && !real_is_ours(first))
        open = (void *(*)(const char *, int))first;
    return open ? open(path, RTLD_NOLOAD | RTLD_LAZY) : NULL;
}

struct link_map *real_object(const void *address)
{
    Dl_info info;
    struct link_map *object = NULL;
    return dladdr1(address, &info, (void **)&object, RTLD_DL_LINKMAP) ? object : NULL;
}

int real_may_open(void)
{
    static _Atomic int may;
    if (may)
        return 1;
    const struct link_map *first = real_object(real_dlsym_call);
    const struct r_debug *debug = NULL;
    while (first && first->l_prev)
        first = first->l_prev;
    for (const ElfW(Dyn) *entry = first ? first->l_ld : NULL; entry && entry->d_tag; entry++)
        if (entry->d_tag == DT_DEBUG)
            debug = (const struct r_debug *)entry->d_un.d_ptr;
    may = !debug || debug->r_state == RT_CONSISTENT;
    return may;
}

void *real_handle(const char *path)
{
    void *handle = *path && real_may_open() ? handle_of(path) : NULL;
    if (handle)
        dlclose(handle);
    return handle;
}

void *real_scope(const void *caller)
{
    const struct link_map *object = real_object(caller);
    return object ? real_handle(object->l_name) : NULL;
}

void *real_beside(const void *caller, const char *name)
{
    void *handle = real_scope(caller);
    void *function = handle ? real_dlsym_call(handle, name) : NULL;
    /* Another interposer has called us and defines the function itself: it would call us again. */
    return function && real_object(function) != real_object(caller) ? function : NULL;
}

static void **slot(size_t i)
{
    return (void **)((char *)&real_table + functions[i].offset);
}

struct search {
    const void *inside;
    struct range *range;
};

static int find_range(struct dl_phdr_info *info, size_t size, void *data)
{
    const struct search *search = data;
    uintptr_t inside = (uintptr_t)search->inside, begin = UINTPTR_MAX, end = 0;
    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type != PT_LOAD)
            continue;
        uintptr_t from = info->dlpi_addr + header->p_vaddr;
        begin = from < begin ? from : begin;
        end = from + header->p_memsz > end ? from + header->p_memsz : end;
    }
    if (inside < begin || inside >= end)
        return 0;
    atomic_store(&search->range->begin, begin);
    atomic_store(&search->range->end, end);
    return 1;
}

static int is_libcuda(const char *path)
{
    static const char name[] = "/libcuda.so";
    const char *file = strrchr(path, '/');
    return file && strncmp(file, name, sizeof name - 1) == 0;
}

static int find_libcuda(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    if (is_libcuda(info->dlpi_name))
        *(const char **)data = info->dlpi_name;
    return is_libcuda(info->dlpi_name);
}

/* libcuda itself; `driver` is the object that answers to its name. */
static void *libcuda_behind(void *driver)
{
    const struct link_map *object = real_object(real_dlsym_call(driver, "cuInit"));
    const char *path = NULL;
    if (object && !is_libcuda(object->l_name))
        dl_iterate_phdr(find_libcuda, &path);
    void *libcuda = path ? real_handle(path) : NULL;
    return libcuda ? libcuda : driver;
}

int real_load(void)
{
    if (atomic_load_explicit(&real_loaded, memory_order_acquire))
        return 1;
    if (!real_may_open())
        return 0;
    /* Never closed: the table points into it. */
    void *driver = handle_of("libcuda.so.1");
    if (!driver)
        return 0;
    void *libcuda = libcuda_behind(driver);
    for (size_t i = 0; i < FUNCTIONS; i++) {
        void *function = real_dlsym_call(driver, functions[i].name);
        void *behind = libcuda == driver ? function : real_dlsym_call(libcuda, functions[i].name);
        if (!function) /* the stand-in lacks it */
            function = behind ? behind : (void *)missing;
        __atomic_store_n(&own[i], behind, __ATOMIC_RELAXED);
        __atomic_store_n(slot(i), function, __ATOMIC_RELAXED);
    }
    struct search searches[] = {{(void *)real_table.cuInit, &drivers[0]},
                                {real_dlsym_call(libcuda, "cuInit"), &drivers[1]}};
    dl_iterate_phdr(find_range, &searches[0]);
    dl_iterate_phdr(find_range, &searches[1]);
    atomic_store_explicit(&real_loaded, 1, memory_order_release);
    return 1;
}

/* The object that holds `inside`: is it the second stage of the driver? */
struct stage {
    const void *inside;
    int adopted;
};

static int adopt_object(struct dl_phdr_info *info, size_t size, void *data)
{
    struct stage *stage = data;
    const struct object object = elf_object(info);
    (void)size;
    if (!elf_holds(info, (uintptr_t)stage->inside))
        return 0;
    if (!object.dynamic)
        return 1;
    const struct tables tables = elf_tables(&object);
    if (!elf_find(&object, &tables, "cuInit") || !elf_find(&object, &tables, "cuMemAlloc_v2"))
        return 1;
    for (size_t i = 0; i < FUNCTIONS; i++) {
        void *function = elf_find(&object, &tables, functions[i].name);
        if (!function)
            continue;
        __atomic_store_n(&own[i], function, __ATOMIC_RELAXED);
        if (__atomic_load_n(slot(i), __ATOMIC_RELAXED) == (void *)missing)
            __atomic_store_n(slot(i), function, __ATOMIC_RELAXED);
    }
    stage->adopted = 1;
    return 1;
}

int real_adopt(const void *function)
{
    struct stage stage = {.inside = function};
    if (!real_load() || real_is_driver(function) || real_is_ours(function))
        return 0;
    dl_iterate_phdr(adopt_object, &stage);
    if (stage.adopted) {
        struct search search = {function, &drivers[1]};
        dl_iterate_phdr(find_range, &search);
    }
    return stage.adopted;
}

int real_hook_of(const void *function)
{
    if (!function || !real_load())
        return -1;
    for (int i = 0; i < HOOKS; i++)
        if (*slot((size_t)i) == function || own[i] == function)
            return i;
    return -1;
}

int real_is_ours(const void *address)
{
    return (uintptr_t)address >= (uintptr_t)__ehdr_start && (uintptr_t)address < (uintptr_t)etext;
}

int real_is_driver(const void *address)
{
    for (int i = 0; i < 2; i++)
        if ((uintptr_t)address >= atomic_load(&drivers[i].begin) &&
            (uintptr_t)address < atomic_load(&drivers[i].end))
            return 1;
    return 0;
}
