/* The dynamic tables of a loaded object, read without any lock. */
#ifndef CACHALOT_INTERPOSE_RESOLVE_ELF_TABLES_H
#define CACHALOT_INTERPOSE_RESOLVE_ELF_TABLES_H

#include <link.h>
#include <stdint.h>

/* dynamic: NULL where the object has none. */
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

struct object elf_object(const struct dl_phdr_info *info);

/* Does a segment of the object contain the address? */
int elf_holds(const struct dl_phdr_info *info, uintptr_t address);

/* An entry of `dynamic` as an address; NULL for 0. In most objects the loader has relocated it
 * already. */
const void *elf_address(const struct object *object, ElfW(Addr) value);

/* Entries that the object lacks are NULL or 0. */
struct tables elf_tables(const struct object *object);

/* Is the object CUDA's runtime or driver, by its file or by its own name? */
int elf_is_cuda(const struct dl_phdr_info *info, const struct tables *tables);

/* Is this name of a file that of CUDA's runtime or driver? */
int elf_names_cuda(const char *path);

/* The function `name` that the object defines in its default version; NULL: none. */
void *elf_find(const struct object *object, const struct tables *tables, const char *name);

#endif
