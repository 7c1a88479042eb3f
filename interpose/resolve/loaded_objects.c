/* dlsym, dladdr and dlopen take the loader's lock, which is held while constructors and destructors
 * run. dl_iterate_phdr takes another lock, which is not; _dl_find_object (glibc 2.35) takes none.
 * So this file reads the objects' tables itself.
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
#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MOST_DEFINERS 8
#define REMEMBERED 4 /* callers per thread */

/* The result of glibc's _dl_find_object; later versions may fill in more. */
struct found {
    unsigned long long flags;
    void *begin, *end;
    struct link_map *map;
    void *more[12];
};

struct object {
    uintptr_t base;
    const ElfW(Dyn) * dynamic;
};

struct tables {
    const char *strings, *soname;
    const ElfW(Sym) * symbols;
    const ElfW(Half) * versions;
    const uint32_t *gnu_hash, *hash;
};

/* A table entry as an address; NULL for 0. In most objects the loader has relocated it already. */
static const void *address_in(const struct object *object, ElfW(Addr) value)
{
    return !value ? NULL : (const void *)(value < object->base ? object->base + value : value);
}

static struct tables tables_of(const struct object *object)
{
    ElfW(Addr) value[DT_SYMBOLIC] = {0}, gnu_hash = 0, versions = 0;
    for (const ElfW(Dyn) *entry = object->dynamic; entry->d_tag != DT_NULL; entry++)
        if ((uint64_t)entry->d_tag < DT_SYMBOLIC)
            value[entry->d_tag] = entry->d_un.d_ptr;
        else if (entry->d_tag == DT_GNU_HASH)
            gnu_hash = entry->d_un.d_ptr;
        else if (entry->d_tag == DT_VERSYM)
            versions = entry->d_un.d_ptr;
    struct tables tables = {
        .strings = address_in(object, value[DT_STRTAB]),
        .symbols = address_in(object, value[DT_SYMTAB]),
        .versions = address_in(object, versions),
        .gnu_hash = address_in(object, gnu_hash),
        .hash = address_in(object, value[DT_HASH]),
    };
    if (tables.strings && value[DT_SONAME])
        tables.soname = tables.strings + value[DT_SONAME];
    return tables;
}

/* Is symbol i the definition of a function `name`, in its default version? */
static int is_definition(const struct tables *tables, uint32_t i, const char *name)
{
    const ElfW(Sym) *symbol = &tables->symbols[i];
    int type = symbol->st_info & 0xf; /* the same in both classes */
    return symbol->st_shndx != SHN_UNDEF && symbol->st_value &&
           (type == STT_FUNC || type == STT_NOTYPE) &&
           !(tables->versions && tables->versions[i] & 0x8000) &&
           strcmp(tables->strings + symbol->st_name, name) == 0;
}

/* The index of the symbol, or 0. The table: buckets, first symbol, words and shift of the
 * filter. */
static uint32_t find_by_gnu_hash(const struct tables *tables, const char *name)
{
    const uint32_t *table = tables->gnu_hash;
    uint32_t buckets = table[0], first = table[1], words = table[2], hash = 5381;
    const ElfW(Addr) *filter = (const ElfW(Addr) *)(table + 4);
    const uint32_t *bucket = (const uint32_t *)(filter + words), *chain = bucket + buckets;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    unsigned bits = sizeof *filter * 8;
    ElfW(Addr) word = filter[hash / bits % words];
    if (!buckets || !(word >> hash % bits & word >> (hash >> table[3]) % bits & 1))
        return 0;
    for (uint32_t i = bucket[hash % buckets]; i >= first && i; i++) {
        if ((chain[i - first] | 1) == (hash | 1) && is_definition(tables, i, name))
            return i;
        if (chain[i - first] & 1)
            break;
    }
    return 0;
}

/* The same in the older hash table: numbers of buckets and symbols, buckets, chains. */
static uint32_t find_by_hash(const struct tables *tables, const char *name)
{
    const uint32_t *table = tables->hash;
    uint32_t buckets = table[0], hash = 0;
    for (const char *c = name; *c; c++) {
        hash = (hash << 4) + (unsigned char)*c;
        hash ^= hash >> 24 & 0xf0;
        hash &= 0x0fffffff;
    }
    const uint32_t *bucket = table + 2, *chain = bucket + buckets;
    for (uint32_t i = buckets ? bucket[hash % buckets] : 0; i; i = chain[i])
        if (is_definition(tables, i, name))
            return i;
    return 0;
}

static void *find(const struct object *object, const struct tables *tables, const char *name)
{
    uint32_t i = 0;
    if (tables->strings && tables->symbols && tables->gnu_hash)
        i = find_by_gnu_hash(tables, name);
    else if (tables->strings && tables->symbols && tables->hash)
        i = find_by_hash(tables, name);
    return i ? (void *)(object->base + tables->symbols[i].st_value) : NULL;
}

/* Does the object name `soname` among the libraries that it needs? */
static int needs(const struct object *object, const char *soname)
{
    const char *strings = tables_of(object).strings;
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

static int holds(const struct dl_phdr_info *info, uintptr_t address)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_LOAD &&
            address - info->dlpi_addr - header->p_vaddr < header->p_memsz)
            return 1;
    }
    return 0;
}

static void note_definer(struct search *search, const struct object *object)
{
    const struct tables tables = tables_of(object);
    void *function = find(object, &tables, search->name);
    if (function && search->count++ < MOST_DEFINERS)
        search->definer[search->count - 1] = (struct definer){tables.soname, function};
}

static int visit(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *search = data;
    struct object object = {.base = info->dlpi_addr};
    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            object.dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    if (!object.dynamic)
        return 0;
    if (holds(info, search->caller)) {
        search->from = object;
        search->before_us = !search->found_us;
    } else if (!search->found_us) {
        search->found_us = holds(info, (uintptr_t)visit);
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
    struct tables tables = search->from.dynamic ? tables_of(&search->from) : (struct tables){0};
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

void objects_prepare(void)
{
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
    const struct tables tables = tables_of(&object);
    if (claim->choice == CHOSEN_NAMED && (!tables.soname || !needs(&from, tables.soname)))
        return NULL;
    return find(&object, &tables, name);
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
