/* An object that was opened with RTLD_DEEPBIND, or that comes after a libcuda in LD_PRELOAD, calls
 * the CUDA libraries directly. The loader keeps the addresses of called functions in tables of the
 * calling object (GOT). This file finds the entries that hold a function of a CUDA library, and
 * puts our function of that name there.
 *
 * The dynamic loader's own functions are led to us too, for objects that look CUDA up. A tool behind
 * us that defines dlopen keeps its own: it may ask where that lies, to find itself (Nsight Compute).
 *
 * Left as they are:
 * - entries that hold the function of another library: a tool has its reason;
 * - functions that an object defines itself;
 * - unresolved entries (lazy binding) of names that an object before us defines.
 *
 * /proc/self/mem writes the entries. It needs no permission of the page (RELRO), cannot fault, and
 * changes no protection that another tool relies on. An aligned write of 8 bytes is seen whole. */
#include "interpose/resolve/bindings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "interpose/process/process.h"
#include "interpose/resolve/elf_tables.h"
#include "interpose/resolve/real_driver.h"
#include "stats/os/descriptor.h"

#if defined(__x86_64__)
enum { TO_SYMBOL = R_X86_64_64, TO_DATA = R_X86_64_GLOB_DAT, TO_FUNCTION = R_X86_64_JUMP_SLOT };
#else
enum {
    TO_SYMBOL = R_AARCH64_ABS64,
    TO_DATA = R_AARCH64_GLOB_DAT,
    TO_FUNCTION = R_AARCH64_JUMP_SLOT
};
#endif

#define MOST_BEFORE 16 /* objects before us, where there are more no lazy entry is changed */

_Atomic int bindings_looking;
static char unreached[180];
static _Atomic int is_unreached;
static void (*_Atomic cuda_found)(void); /* NULL: has been called */

/* What the last look has seen. Every access is within a walk, whose lock protects it. */
static struct seen {
    _Atomic unsigned long long loads, unloads;
    _Atomic unsigned objects; /* the first ones of the list, whose entries are all done */
} seen;

struct look {
    struct object ours, before[MOST_BEFORE];
    struct tables our_tables;
    unsigned count_before, place, changed;
    int is_preload, unrelocated, has_cuda;
    int returns;              /* the walk of bindings_return_dlopen */
    struct descriptor memory; /* /proc/self/mem, once there is something to change */
};

/* The object under the look. */
struct subject {
    const struct dl_phdr_info *info;
    struct object object;
    struct tables tables;
};

static int is_hookable(const char *name)
{
    if (name[0] == 'c' && name[1] == 'u')
        return (name[2] >= 'A' && name[2] <= 'Z') ||
               (strncmp(name + 2, "da", 2) == 0 && name[4] >= 'A' && name[4] <= 'Z');
    return strcmp(name, "dlsym") == 0 || strcmp(name, "dlopen") == 0 ||
           strcmp(name, "dlmopen") == 0;
}

struct owner {
    uintptr_t address;
    const char *name;
    int is_native; /* a CUDA library defines the function `name` there */
};

static int find_owner(struct dl_phdr_info *info, size_t size, void *data)
{
    struct owner *owner = data;
    (void)size;
    if (!elf_holds(info, owner->address))
        return 0;
    const struct object object = elf_object(info);
    if (!object.dynamic)
        return 1;
    const struct tables tables = elf_tables(&object);
    owner->is_native = elf_is_cuda(info, &tables) &&
                       (uintptr_t)elf_find(&object, &tables, owner->name) == owner->address;
    return 1;
}

/* Is `value` the function that `name` has natively? */
static int is_native(const char *name, void *value)
{
    struct owner owner = {.address = (uintptr_t)value, .name = name};
    if (name[0] == 'd')
        return value == (name[2] == 's' ? real_dlsym_find() : real_open_find(name[2] == 'm'));
    dl_iterate_phdr(find_owner, &owner);
    return owner.is_native;
}

static int is_defined_before_us(const struct look *look, const char *name)
{
    for (unsigned i = 0; i < look->count_before && i < MOST_BEFORE; i++) {
        const struct tables tables = elf_tables(&look->before[i]);
        if (elf_find(&look->before[i], &tables, name))
            return 1;
    }
    return look->count_before > MOST_BEFORE;
}

/* Replaces `before` in the entry. What is there is read first: in an emulator the file may be the
 * memory of another process. System calls, since the library functions are points of
 * cancellation. */
static int replace(struct look *look, void **entry, void *before, void *function)
{
    void *there = NULL;
    off_t at = (off_t)(uintptr_t)entry;
    if (!look->memory.fd)
        descriptor_take(&look->memory,
                        (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDWR | O_CLOEXEC),
                        S_IFREG);
    int fd = look->memory.fd - 1;
    return syscall(SYS_pread64, fd, &there, sizeof there, at) == sizeof there && there == before &&
           syscall(SYS_pwrite64, fd, &function, sizeof function, at) == sizeof function;
}

static int note_unreached(struct dl_phdr_info *info, size_t size, void *address)
{
    (void)size;
    if (atomic_load(&is_unreached) || !elf_holds(info, (uintptr_t)address))
        return 0;
    snprintf(unreached, sizeof unreached, "%s", info->dlpi_name);
    atomic_store(&is_unreached, 1);
    return 1;
}

void bindings_go_past(const void *function)
{
    dl_iterate_phdr(note_unreached, (void *)function);
}

static unsigned lead_to_us(struct look *look, void **entry, void *before, void *ours)
{
    int done = replace(look, entry, before, ours);
    if (!done)
        bindings_go_past(entry);
    return done != 0;
}

/* Gives an object its own dlopen or dlmopen back, if that is what our function goes on to. */
static void return_own(struct look *look, void **entry, void *ours, const char *name, void *own)
{
    if (name[0] == 'd' && name[2] != 's' && own == real_open_find(name[2] == 'm'))
        replace(look, entry, ours, own);
}

static void look_at_entry(struct look *look, const struct subject *subject,
                          const ElfW(Rela) * relocation)
{
    unsigned long type = ELF64_R_TYPE(relocation->r_info);
    const ElfW(Sym) *symbol = &subject->tables.symbols[ELF64_R_SYM(relocation->r_info)];
    const char *name = subject->tables.strings + symbol->st_name;
    if ((type != TO_SYMBOL && type != TO_DATA && type != TO_FUNCTION) || relocation->r_addend ||
        !is_hookable(name))
        return;
    void **entry = (void **)(subject->object.base + relocation->r_offset);
    void *value = __atomic_load_n(entry, __ATOMIC_RELAXED);
    void *ours = elf_find(&look->ours, &look->our_tables, name);
    int is_own = symbol->st_shndx != SHN_UNDEF;
    if (is_own && look->returns && value == ours)
        return_own(look, entry, ours, name, (void *)(subject->object.base + symbol->st_value));
    if (!ours || value == ours || is_own || look->returns)
        return;
    uintptr_t address = (uintptr_t)value, base = subject->object.base;
    if (!value || (base && elf_holds(subject->info, base + address)))
        look->unrelocated = 1; /* the loader is not done with it: this is an offset */
    else if (elf_holds(subject->info, address)) { /* unresolved: nothing has gone past us yet */
        if (type == TO_FUNCTION && !is_defined_before_us(look, name))
            lead_to_us(look, entry, value, ours);
    } else if (is_native(name, value)) {
        look->changed += lead_to_us(look, entry, value, ours);
    }
}

/* May the object call a function that we export? Its undefined symbols come first, before those of
 * its hash table, except in an object that defines none. */
static int imports_cuda(const struct tables *tables)
{
    uint32_t end = tables->gnu_hash ? tables->gnu_hash[1] : 0;
    if (end <= 1)
        return 1;
    for (uint32_t i = 1; i < end; i++)
        if (tables->symbols[i].st_shndx == SHN_UNDEF &&
            is_hookable(tables->strings + tables->symbols[i].st_name))
            return 1;
    return 0;
}

static void look_at_relocations(struct look *look, const struct subject *subject)
{
    const ElfW(Rela) * table[2] = {0};
    size_t bytes[2] = {0}, relative = 0;
    for (const ElfW(Dyn) *entry = subject->object.dynamic; entry->d_tag != DT_NULL; entry++)
        switch (entry->d_tag) {
        case DT_RELA:
            table[0] = elf_address(&subject->object, entry->d_un.d_ptr);
            break;
        case DT_RELASZ:
            bytes[0] = entry->d_un.d_val;
            break;
        case DT_RELACOUNT:
            relative = entry->d_un.d_val;
            break;
        case DT_JMPREL:
            table[1] = elf_address(&subject->object, entry->d_un.d_ptr);
            break;
        case DT_PLTRELSZ:
            bytes[1] = entry->d_un.d_val;
            break;
        }
    for (int i = 0; i < 2; i++)
        for (size_t at = i ? 0 : relative; table[i] && at < bytes[i] / sizeof *table[i]; at++)
            if (ELF64_R_SYM(table[i][at].r_info))
                look_at_entry(look, subject, &table[i][at]);
}

/* Finds this library and the objects before it. Where libc comes before it, it is no preload, and
 * nothing is changed. */
static int find_us(struct dl_phdr_info *info, size_t size, void *data)
{
    struct look *look = data;
    const struct object object = elf_object(info);
    (void)size;
    if (elf_holds(info, (uintptr_t)find_us)) {
        look->ours = object;
        look->our_tables = elf_tables(&object);
        return 1;
    }
    look->is_preload &= !elf_holds(info, (uintptr_t)real_dlsym_find());
    if (object.dynamic && look->count_before++ < MOST_BEFORE)
        look->before[look->count_before - 1] = object;
    return 0;
}

static int look_at_object(struct dl_phdr_info *info, size_t size, void *data)
{
    struct look *look = data;
    struct subject subject = {.info = info, .object = elf_object(info)};
    (void)size;
    if (look->place++ < seen.objects)
        return 0;
    if (subject.object.dynamic && subject.object.dynamic != look->ours.dynamic) {
        subject.tables = elf_tables(&subject.object);
        look->has_cuda |= elf_is_cuda(info, &subject.tables);
        if (subject.tables.symbols && subject.tables.strings && imports_cuda(&subject.tables))
            look_at_relocations(look, &subject);
    }
    if (!look->unrelocated)
        seen.objects = look->place;
    return 0;
}

static int look_at_next_dlopen(struct dl_phdr_info *info, size_t size, void *data)
{
    struct look *look = data;
    struct subject subject = {.info = info, .object = elf_object(info)};
    (void)size;
    if (!elf_holds(info, (uintptr_t)real_open_find(0)))
        return 0;
    subject.tables = elf_tables(&subject.object);
    if (look->ours.dynamic && subject.object.dynamic)
        look_at_relocations(look, &subject);
    return 1;
}

/* Nothing is loaded or unloaded during a walk: so the whole look runs inside one. */
static int look_at_all(struct dl_phdr_info *info, size_t size, void *data)
{
    struct look *look = data;
    (void)size;
    if (info->dlpi_adds == seen.loads && info->dlpi_subs == seen.unloads)
        return 1;
    if (info->dlpi_subs != seen.unloads)
        seen.objects = 0;
    seen.unloads = info->dlpi_subs;
    dl_iterate_phdr(find_us, look);
    if (!look->is_preload)
        atomic_store(&bindings_looking, 0);
    else
        dl_iterate_phdr(look_at_object, look);
    descriptor_close(&look->memory);
    if (!look->unrelocated)
        seen.loads = info->dlpi_adds;
    return 1;
}

static int find_cuda(struct dl_phdr_info *info, size_t size, void *data)
{
    const struct object object = elf_object(info);
    (void)size, (void)data;
    if (!object.dynamic)
        return 0;
    const struct tables tables = elf_tables(&object);
    return elf_is_cuda(info, &tables);
}

int bindings_find_cuda(void)
{
    return dl_iterate_phdr(find_cuda, NULL);
}

void bindings_return_dlopen(void)
{
    static _Atomic int is_done;
    struct look look = {.returns = 1};
    int error = errno;
    if (atomic_exchange(&is_done, 1))
        return;
    real_open_find(0); /* now, since it takes the loader's lock, which a walk may not wait for */
    real_open_find(1);
    dl_iterate_phdr(find_us, &look);
    dl_iterate_phdr(look_at_next_dlopen, &look);
    descriptor_close(&look.memory);
    errno = error;
}

void bindings_begin(void (*cuda_is_here)(void))
{
    atomic_store(&cuda_found, cuda_is_here);
    bindings_return_dlopen();
    if (process_enabled())
        atomic_store(&bindings_looking, 1);
    bindings_look();
}

void bindings_look(void)
{
    if (!atomic_load_explicit(&bindings_looking, memory_order_relaxed))
        return;
    struct look look = {.is_preload = 1};
    int error = errno;
    dl_iterate_phdr(look_at_all, &look);
    void (*found)(void) = look.has_cuda ? atomic_exchange(&cuda_found, NULL) : NULL;
    if (found)
        found();
    for (; look.changed; look.changed--)
        process_count(COVERAGE_table_entries);
    if (process.page && bindings_unreached() && !process.page->coverage_note[0]) {
        snprintf(process.page->coverage_note, sizeof process.page->coverage_note,
                 "calls of CUDA go past us, and cannot be led back: %s", bindings_unreached());
        PAGE_TELL(process.page, coverage_note);
    }
    errno = error;
}

const char *bindings_unreached(void)
{
    return atomic_load(&is_unreached) ? unreached : NULL;
}
