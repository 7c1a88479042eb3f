#include "interpose/resolve/elf_tables.h"

#include <string.h>

struct object elf_object(const struct dl_phdr_info *info)
{
    struct object object = {.base = info->dlpi_addr};
    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            object.dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    return object;
}

int elf_holds(const struct dl_phdr_info *info, uintptr_t address)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_LOAD &&
            address - info->dlpi_addr - header->p_vaddr < header->p_memsz)
            return 1;
    }
    return 0;
}

const void *elf_address(const struct object *object, ElfW(Addr) value)
{
    return !value ? NULL : (const void *)(value < object->base ? object->base + value : value);
}

struct tables elf_tables(const struct object *object)
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
        .strings = elf_address(object, value[DT_STRTAB]),
        .symbols = elf_address(object, value[DT_SYMTAB]),
        .versions = elf_address(object, versions),
        .gnu_hash = elf_address(object, gnu_hash),
        .hash = elf_address(object, value[DT_HASH]),
    };
    if (tables.strings && value[DT_SONAME])
        tables.soname = tables.strings + value[DT_SONAME];
    return tables;
}

int elf_names_cuda(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return strncmp(name, "libcuda.so", 10) == 0 || strncmp(name, "libcudart", 9) == 0;
}

int elf_is_cuda(const struct dl_phdr_info *info, const struct tables *tables)
{
    return elf_names_cuda(info->dlpi_name) || (tables->soname && elf_names_cuda(tables->soname));
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

void *elf_find(const struct object *object, const struct tables *tables, const char *name)
{
    uint32_t i = 0;
    if (tables->strings && tables->symbols && tables->gnu_hash)
        i = find_by_gnu_hash(tables, name);
    else if (tables->strings && tables->symbols && tables->hash)
        i = find_by_hash(tables, name);
    return i ? (void *)(object->base + tables->symbols[i].st_value) : NULL;
}
