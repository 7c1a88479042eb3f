/* dlsym, dladdr and dlopen take the loader's lock, which is held while constructors and destructors
 * run. dl_iterate_phdr takes another lock, which is not; _dl_find_object (glibc 2.35) takes none.
 * So this file reads the objects' tables itself (elf_tables.c).
 *
 * Which definition the caller would get:
 * - An object loaded before us (the program, or a preload) searches the global scope: it gets the
 *   first definition after us.
 * - Any other object names the library (DT_NEEDED), or there is only one definition.
 *
 * Each thread remembers results as claims, and checks a claim at each use: the caller's object is
 * unchanged, and where the definition was lies an object whose name the caller wants and which
 * defines the function. So unloading objects does no harm. A claim that rests on there being only
 * one definition holds until any object is loaded or unloaded. */
#include "interpose/resolve/loaded_objects.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "interpose/resolve/elf_tables.h"

#define MOST_DEFINERS 8
#define REMEMBERED 4 /* callers per thread */

/* The result of glibc's _dl_find_object; later versions may fill in more. */
struct found {
    unsigned long long flags;
    void *begin, *end;
    struct link_map *map;
    void *more[12];
};

/* Does the object name `soname` among the libraries that it needs? */
static int needs(const struct object *object, const char *soname)
{
    const char *strings = elf_tables(object).strings;
    for (const ElfW(Dyn) *entry = object->dynamic; strings && entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == DT_NEEDED && strcmp(strings + entry->d_un.d_val, soname) == 0)
            return 1;
    return 0;
}

enum choice { CHOSEN_NONE, CHOSEN_NAMED, CHOSEN_FIRST, CHOSEN_ONLY };

/* A walk over all objects, in the order of loading. */
struct search {
    const char *name;
    uintptr_t caller;
    int found_us, before_us;
    struct object from; /* the caller's object */
    struct definer {
        const char *soname;
        void *function;
    } definer[MOST_DEFINERS];
    unsigned count;
    void *function; /* the definition chosen, and why */
    enum choice choice;
    uint64_t changes;
};

static void note_definer(struct search *search, const struct object *object)
{
    const struct tables tables = elf_tables(object);
    void *function = elf_find(object, &tables, search->name);
    if (function && search->count++ < MOST_DEFINERS)
        search->definer[search->count - 1] = (struct definer){tables.soname, function};
}

static int visit(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *search = data;
    struct object object = elf_object(info);
    (void)size;
    if (!object.dynamic)
        return 0;
    if (elf_holds(info, search->caller)) {
        search->from = object;
        search->before_us = !search->found_us;
    } else if (!search->found_us) {
        search->found_us = elf_holds(info, (uintptr_t)visit);
    } else {
        note_definer(search, &object);
    }
    return 0;
}

/* Chooses the first library that the caller names and that defines the function; else the only
 * one. */
static void choose(struct search *search)
{
    if (!search->count || search->count > MOST_DEFINERS)
        return;
    if (search->before_us || search->count == 1) {
        search->function = search->definer[0].function;
        search->choice = search->before_us ? CHOSEN_FIRST : CHOSEN_ONLY;
    }
    struct tables tables = search->from.dynamic ? elf_tables(&search->from) : (struct tables){0};
    for (const ElfW(Dyn) *entry = search->from.dynamic;
         tables.strings && !search->before_us && entry->d_tag != DT_NULL; entry++)
        for (unsigned i = 0; entry->d_tag == DT_NEEDED && i < search->count; i++) {
            const char *soname = search->definer[i].soname;
            if (!soname || strcmp(soname, tables.strings + entry->d_un.d_val))
                continue;
            search->function = search->definer[i].function;
            search->choice = CHOSEN_NAMED;
            return;
        }
}

/* Counts loads and unloads until now. */
static int count_changes(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    *(uint64_t *)data = info->dlpi_adds + info->dlpi_subs;
    return 1;
}

/* Nothing is unloaded during a walk: so `visit` and `choose` run inside one. */
static int walk(struct dl_phdr_info *info, size_t size, void *data)
{
    dl_iterate_phdr(visit, data);
    choose(data);
    return count_changes(info, size, &((struct search *)data)->changes);
}

static int (*find_object)(void *address, struct found *found);

static char hook_order[128];

/* The program is no hook: it may contain a runtime. */
static int append_hook(struct dl_phdr_info *info, size_t size, void *data)
{
    const struct object object = elf_object(info);
    const char *slash = strrchr(info->dlpi_name, '/');
    size_t used = strlen(hook_order);
    (void)size;
    if (!object.dynamic || !info->dlpi_name[0])
        return 0;
    const struct tables tables = elf_tables(&object);
    if (elf_is_cuda(info, &tables) ||
        (!elf_find(&object, &tables, "cudaMalloc") && !elf_find(&object, &tables, "cuMemAlloc_v2")))
        return 0;
    snprintf(hook_order + used, sizeof hook_order - used, "%s%s", used ? ", " : "",
             slash ? slash + 1 : info->dlpi_name);
    ++*(unsigned *)data;
    return 0;
}

const char *objects_hook_order(void)
{
    return hook_order;
}

void objects_prepare(void)
{
    unsigned hooks = 0;
    dl_iterate_phdr(append_hook, &hooks);
    if (hooks < 2)
        hook_order[0] = 0;
    void *function = dlvsym(RTLD_DEFAULT, "_dl_find_object", "GLIBC_2.35");
    __atomic_store_n((void **)&find_object, function, __ATOMIC_RELEASE);
}

static int object_at(const void *address, struct found *found)
{
    __typeof__(find_object) function = __atomic_load_n(&find_object, __ATOMIC_ACQUIRE);
    return function && function((void *)address, found) == 0 && found->map;
}

static _Thread_local struct claim {
    const void *map, *begin; /* of the caller's object; NULL: no claim */
    const void *function;    /* a function of the object found */
    enum choice choice;      /* CHOSEN_FIRST: the caller is never unloaded */
    uint64_t changes;
} claims[REMEMBERED];
static _Thread_local unsigned claimed;

/* The function `name` of the claimed object, if the claim still holds. */
static void *recall(const struct claim *claim, const struct found *caller, const char *name)
{
    struct found found;
    uint64_t changes = claim->changes;
    if (!claim->map || !object_at(claim->function, &found))
        return NULL;
    if (claim->choice == CHOSEN_ONLY)
        dl_iterate_phdr(count_changes, &changes);
    if (changes != claim->changes)
        return NULL;
    const struct object object = {found.map->l_addr, found.map->l_ld};
    const struct object from = {caller->map->l_addr, caller->map->l_ld};
    const struct tables tables = elf_tables(&object);
    if (claim->choice == CHOSEN_NAMED && (!tables.soname || !needs(&from, tables.soname)))
        return NULL;
    return elf_find(&object, &tables, name);
}

/* The claim of this caller, or an entry to reuse for it. */
static struct claim *claim_of(const struct found *caller)
{
    for (unsigned i = 0; i < REMEMBERED; i++)
        if (claims[i].map == caller->map && claims[i].begin == caller->begin)
            return &claims[i];
    struct claim *claim = &claims[claimed++ % REMEMBERED];
    claim->map = NULL;
    return claim;
}

void *objects_beside(const void *caller, const char *name)
{
    struct found object;
    struct claim *claim = object_at(caller, &object) ? claim_of(&object) : NULL;
    void *function = claim ? recall(claim, &object, name) : NULL;
    if (function)
        return function;
    struct search search = {.name = name, .caller = (uintptr_t)caller};
    dl_iterate_phdr(walk, &search);
    if (claim)
        *claim = (struct claim){search.function ? object.map : NULL, object.begin, search.function,
                                search.choice, search.changes};
    return search.function;
}
