/* Making the live page: a preallocated file on tmpfs, else a memfd, else plain memory; and what its
 * own process writes into it. */
#include "stats/page/page.h"

#include "stats/os/clock.h"
#include "stats/os/create.h"
#include "stats/os/file_limit.h"
#include "stats/os/proc.h"
#include "stats/page/fields.h"
#include "stats/page/program.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#define GENERATIONS 1000

/* What a page is called, and where it lies. */
struct identity {
    uint64_t pid, start_ticks, generation;
    uint64_t file[2];
    char path[sizeof(((struct page *)NULL)->path)];
};

static size_t aligned(size_t size, size_t to)
{
    return (size + to - 1) / to * to;
}

static int is_memory(int fd)
{
    struct statfs system;
    return fstatfs(fd, &system) == 0 &&
           (system.f_type == TMPFS_MAGIC || (unsigned)system.f_type == RAMFS_MAGIC);
}

/* Opens /dev/shm/cachalot-UID, makes it if it is missing, and refuses one in which others can put
 * files. */
static int open_own_directory(const char **problem)
{
    char name[32];
    int shm = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (shm < 0) {
        *problem = "/dev/shm cannot be opened: the page has no file";
        return -1;
    }
    snprintf(name, sizeof name, "cachalot-%u", (unsigned)geteuid());
    if (create_directory(shm, name, 0700) == -EEXIST)
        create_rights_of_owner(shm, name);
    int fd = openat(shm, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    close(shm);
    struct stat status;
    if (fd >= 0 && fstat(fd, &status) == 0 && status.st_uid == geteuid() &&
        (status.st_mode & 077) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    *problem = "/dev/shm/cachalot-UID is missing, not a directory, or open to others: "
               "the page has no file";
    return -1;
}

/* Opens the directory that the user named. It belongs to the user or root; if others can write to it,
 * it is sticky. */
static int open_named_directory(const char *path, const char **problem)
{
    create_directory(AT_FDCWD, path, 0700);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0) {
        *problem = "CACHALOT_PAGE_DIR cannot be opened: the page has no file";
    } else if ((status.st_uid != geteuid() && status.st_uid != 0) ||
               ((status.st_mode & 022) != 0 && (status.st_mode & S_ISVTX) == 0)) {
        *problem = "CACHALOT_PAGE_DIR can be changed by others: the page has no file";
    } else {
        if (!is_memory(fd))
            *problem = "CACHALOT_PAGE_DIR is on a disk: its writes may stall the program";
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Takes the room for the whole page at once: a hole that the file system cannot fill later is a SIGBUS
 * in the program. */
static int allocate(int fd, size_t bytes)
{
    int error = EINTR;
    for (int try = 0; error == EINTR && try < 100; try++)
        error = posix_fallocate(fd, 0, (off_t)bytes);
    return error;
}

/* Creates PID.START.GENERATION.page with the first free generation. */
static int create_file(int directory, struct identity *identity, char *name, size_t size)
{
    for (unsigned generation = 0; generation < GENERATIONS; generation++) {
        snprintf(name, size, "%llu.%llu.%u.page", (unsigned long long)identity->pid,
                 (unsigned long long)identity->start_ticks, generation);
        int fd = openat(directory, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0) {
            identity->generation = generation;
            return fd;
        }
        if (errno != EEXIST)
            return -1;
    }
    return -1;
}

static void note_path(int directory, const char *name, struct identity *identity)
{
    char link[40], path[sizeof identity->path];
    snprintf(link, sizeof link, "/proc/thread-self/fd/%d", directory);
    ssize_t n = readlink(link, path, sizeof path - 1);
    identity->path[0] = '\0';
    if (n > 0 && path[0] == '/' && (size_t)n + strlen(name) + 2 < sizeof identity->path) {
        memcpy(identity->path, path, (size_t)n);
        snprintf(identity->path + n, sizeof identity->path - (size_t)n, "/%s", name);
    }
}

/* Maps the page with a head of private memory, and the head of the file a second time. fd -1: plain
 * memory, which has no readers. */
static struct page *map_parts(int fd, size_t bytes)
{
    int shared = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    int head = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    struct page *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, shared, fd, 0);
    if (page == MAP_FAILED)
        return NULL;
    void *told = mmap(NULL, PAGE_HEAD_BYTES, PROT_READ | PROT_WRITE, shared, fd, 0);
    if (told != MAP_FAILED &&
        mmap(page, PAGE_HEAD_BYTES, PROT_READ | PROT_WRITE, head, -1, 0) != MAP_FAILED) {
        madvise(page, bytes, MADV_DONTFORK);
        madvise(told, PAGE_HEAD_BYTES, MADV_DONTFORK);
        page->own.told = told;
        return page;
    }
    if (told != MAP_FAILED)
        munmap(told, PAGE_HEAD_BYTES);
    munmap(page, bytes);
    return NULL;
}

static struct page *map_file(int directory, size_t bytes, struct identity *identity,
                             const char **problem)
{
    char name[72];
    int fd = create_file(directory, identity, name, sizeof name);
    if (fd < 0) {
        *problem = "no file can be made in the page's directory";
        return NULL;
    }
    struct page *page = NULL;
    struct stat status;
    fchmod(fd, 0600); /* whatever the program's umask */
    if (allocate(fd, bytes) == 0 && fstat(fd, &status) == 0)
        page = map_parts(fd, bytes);
    close(fd);
    if (page == NULL) {
        unlinkat(directory, name, 0);
        *problem = "no room in the page's directory: the page has no file";
        return NULL;
    }
    identity->file[0] = status.st_dev;
    identity->file[1] = status.st_ino;
    note_path(directory, name, identity);
    return page;
}

/* Another user who may write the page would ask for reports with the rights of this one. */
static int is_one_user(void)
{
    uid_t real, effective, saved;
    return getresuid(&real, &effective, &saved) == 0 && real == effective && effective == saved;
}

static struct page *map_in_directory(const char *path, size_t bytes, struct identity *identity,
                                     const char **problem)
{
    if (!is_one_user()) {
        *problem = "real, effective and saved user differ: the page has no file";
        return NULL;
    }
    if (!file_limit_allows(bytes)) {
        *problem = "RLIMIT_FSIZE is smaller than the page: it has no file";
        return NULL;
    }
    int directory = path ? open_named_directory(path, problem) : open_own_directory(problem);
    if (directory < 0)
        return NULL;
    struct page *page = map_file(directory, bytes, identity, problem);
    close(directory);
    return page;
}

/* A page without a name, which ends with the process. While it lives, /proc/PID/map_files shows a
 * memfd. */
static struct page *map_nameless(size_t bytes)
{
    struct page *page = NULL;
    int fd = file_limit_allows(bytes) ? memfd_create("cachalot.page", MFD_CLOEXEC) : -1;
    if (fd >= 0) {
        if (allocate(fd, bytes) == 0)
            page = map_parts(fd, bytes);
        close(fd);
    }
    return page ? page : map_parts(-1, bytes);
}

/* /proc/thread-self and not /proc/self: the latter is the main thread's, and says nothing once that
 * thread has ended. */
static void copy_link(const char *link, char *to, size_t size)
{
    ssize_t n = readlink(link, to, size - 1);
    to[n > 0 ? n : 0] = '\0';
}

static int first_object(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    *(const void **)data = info->dlpi_phdr;
    return 1;
}

/* The program's file. Where the loader or an emulator (valgrind) was started to run the program,
 * /proc names that one: then the file that the program is mapped from counts. */
static void copy_program(struct page *page)
{
    const void *program = NULL;
    copy_link("/proc/thread-self/exe", page->exe, sizeof page->exe);
    dl_iterate_phdr(first_object, &program);
    proc_mapped_file(program, page->exe, sizeof page->exe);
}

static void copy_arguments(struct page *page)
{
    ssize_t n = proc_read("/proc/thread-self/cmdline", page->argv, sizeof page->argv);
    page->argv_bytes = n > 0 ? (uint64_t)n : 0;
    if (n > 0 && page->argv[n - 1] != '\0') /* cut off: proc_read's NUL ends the last one */
        page->argv_bytes++;
}

static void copy_hostname(struct page *page)
{
    struct utsname name;
    if (uname(&name) == 0)
        snprintf(page->hostname, sizeof page->hostname, "%s", name.nodename);
}

static void identify(struct identity *identity)
{
    struct proc_status status;
    memset(identity, 0, sizeof *identity);
    identity->pid = (uint64_t)getpid();
    identity->start_ticks = proc_status(identity->pid, &status) == 0 ? status.start_ticks : 0;
}

static void write_identity(struct page *page, const struct identity *identity)
{
    page->pid = identity->pid;
    page->start_ticks = identity->start_ticks;
    page->generation = identity->generation;
    page->pid_namespace = proc_namespace();
    page->uid = geteuid();
    memcpy(page->path, identity->path, sizeof page->path);
    memcpy(page->own.file, identity->file, sizeof page->own.file);
    snprintf(page->tool, sizeof page->tool, "cachalot %s", CACHALOT_VERSION);
    page->start_realtime_ns = clock_ns(CLOCK_REALTIME);
    page->start_monotonic_ns = clock_ns(CLOCK_MONOTONIC);
    copy_program(page);
    copy_arguments(page);
    page_name_program(page);
    if (getcwd(page->cwd, sizeof page->cwd) == NULL)
        page->cwd[0] = '\0';
    copy_hostname(page);
}

static size_t fields_end(unsigned devices)
{
    return aligned(sizeof(struct page), 64) + devices * aligned(sizeof(struct page_device), 64) +
           page_fields_count() * sizeof(struct page_field);
}

static unsigned series_for(struct page_shape shape)
{
    return shape.devices < SERIES_MOST ? shape.devices : SERIES_MOST;
}

static size_t series_end(struct page_shape shape)
{
    return aligned(fields_end(shape.devices), 64) + series_for(shape) * sizeof(struct series);
}

/* The memory costs nothing until a device is used. */
static struct series *own_series(unsigned count)
{
    void *memory = count ? mmap(NULL, count * sizeof(struct series), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                         : MAP_FAILED;
    return memory == MAP_FAILED ? NULL : memory;
}

static void fill(struct page *page, struct page_shape shape, size_t bytes)
{
    page->format = PAGE_FORMAT;
    page->header_bytes = sizeof *page;
    page->page_bytes = (uint32_t)bytes;
    page->field_count = page_fields_count();
    page->device_offset = (uint32_t)aligned(sizeof *page, 64);
    page->device_stride = (uint32_t)aligned(sizeof(struct page_device), 64);
    page->field_offset = page->device_offset + shape.devices * page->device_stride;
    page->exit_code = -1;
    page->device_count = shape.devices;
    page->series_offset = (uint32_t)aligned(fields_end(shape.devices), 64);
    page->series_count = series_for(shape);
    page->own.series = own_series(page->series_count);
    page_fields_write(page);
    if (shape.sites) {
        page->sites_offset = (uint32_t)(bytes - aligned(sizeof(struct sites), 4096));
        page->own.sites = (struct sites *)((char *)page + page->sites_offset);
        page->own.sites->every = shape.sites;
    }
    if (shape.events) {
        page->events_offset = (uint32_t)series_end(shape);
        page->own.events = &page->own.recorder;
        events_start(page->own.events, (char *)page + page->events_offset, shape.events,
                     shape.shown, page->start_monotonic_ns);
    }
}

void page_tell(struct page *page, const void *what, size_t bytes)
{
    size_t offset = (size_t)((const char *)what - (const char *)page);
    if (page->own.told != NULL && offset + bytes <= PAGE_HEAD_BYTES)
        memcpy((char *)page->own.told + offset, what, bytes);
}

void page_tell_all(struct page *page)
{
    page_tell(page, &page->format, offsetof(struct page, own) - offsetof(struct page, format));
}

/* The magic is last: a page without it is still being made. */
static void begin(struct page *page)
{
    page_tell_all(page);
    memcpy(page->magic, PAGE_MAGIC, sizeof page->magic);
    atomic_thread_fence(memory_order_release);
    page_tell(page, page->magic, sizeof page->magic);
}

static size_t bytes_for(struct page_shape shape)
{
    size_t bytes = aligned(series_end(shape) + events_bytes(shape.events), 4096);
    return bytes + (shape.sites ? aligned(sizeof(struct sites), 4096) : 0);
}

struct page *page_create(const char *directory, struct page_shape shape, const char **problem)
{
    struct identity identity;
    *problem = NULL;
    if (shape.devices > PAGE_DEVICES || shape.events > EVENTS_MOST) {
        errno = EINVAL;
        return NULL;
    }
    int error = errno;
    size_t bytes = bytes_for(shape);
    identify(&identity);
    struct page *page = map_in_directory(directory, bytes, &identity, problem);
    if (page == NULL)
        page = map_nameless(bytes);
    if (page == NULL)
        return NULL;
    write_identity(page, &identity);
    fill(page, shape, bytes);
    begin(page);
    errno = error;
    return page;
}

int page_is_of_run(const struct page *page, const char *session)
{
    size_t length = strcspn(session, "/");
    return length != 0 && length == strcspn(page->session, "/") &&
           memcmp(session, page->session, length) == 0;
}

/* A warning claims a slot with its count, then writes its text. */
static int claim(struct page_warning *slot)
{
    uint64_t expected = 0;
    return atomic_compare_exchange_strong(&slot->count, &expected, WARNING_BEGUN);
}

/* Two threads that add the same new text at once may take a slot each: the report adds those up. */
static void warn(struct page *page, const char *text)
{
    for (unsigned i = 0; i < PAGE_WARNINGS; i++) {
        struct page_warning *slot = &page->warning[i];
        if (claim(slot)) {
            snprintf(slot->text, sizeof slot->text, "%s", text);
            atomic_store_explicit(&slot->count, 1, memory_order_release);
            return;
        }
        uint64_t count = atomic_load_explicit(&slot->count, memory_order_acquire);
        if (count != WARNING_BEGUN && strcmp(slot->text, text) == 0) {
            atomic_fetch_add(&slot->count, 1);
            return;
        }
    }
    atomic_fetch_add(&page->warnings_lost, 1);
}

void page_warn(struct page *page, const char *format, ...)
{
    if (page == NULL)
        return;
    char text[sizeof page->warning->text];
    int error = errno;
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    warn(page, text);
    errno = error;
}

void page_config_in_force(struct page *page, const char *option, const char *value, const char *why)
{
    for (unsigned i = 0; i < page->config_count; i++) {
        struct page_config *row = &page->config[i];
        size_t asked = strcspn(row->value, ":");
        if (strcmp(row->name, option) == 0)
            snprintf(row->value + asked, sizeof row->value - asked, ": %s%s%s", value,
                     why ? ", because of " : "", why ? why : "");
        page_tell(page, row, sizeof *row);
    }
}

/* Another user may own a folder above the page and have put another there. */
void page_remove(const struct page *page)
{
    struct stat status;
    if (page->own.told != NULL && page->path[0] != '\0' && lstat(page->path, &status) == 0 &&
        status.st_dev == page->own.file[0] && status.st_ino == page->own.file[1])
        unlink(page->path);
}

void page_close(struct page *page, int remove)
{
    if (remove)
        page_remove(page);
    if (page->own.told != NULL)
        munmap(page->own.told, PAGE_HEAD_BYTES);
    if (page->own.series != NULL)
        munmap(page->own.series, page->series_count * sizeof *page->own.series);
    munmap(page, page->page_bytes);
}
