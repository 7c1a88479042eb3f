/* Preloaded: the N-th call of a libc function that libcachalot.so makes fails, once `fail_libc` was
 * given FUNCTION:N (N+: that and all later ones; 0: none). Calls of others, and those that libc makes of itself, pass. Functions end in
 * the errors that they have when a process or a machine runs out of something. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

/* function, its type, parameters, arguments, what it returns when it fails, errno */
#define LIST(X)                                                                                    \
    X(malloc, void *, (size_t bytes), (bytes), NULL, ENOMEM)                                       \
    X(calloc, void *, (size_t n, size_t bytes), (n, bytes), NULL, ENOMEM)                          \
    X(realloc, void *, (void *old, size_t bytes), (old, bytes), NULL, ENOMEM)                      \
    X(mmap64, void *, (void *at, size_t n, int p, int f, int fd, off_t o), (at, n, p, f, fd, o),   \
      MAP_FAILED, ENOMEM)                                                                          \
    X(mmap, void *, (void *at, size_t n, int p, int f, int fd, off_t o), (at, n, p, f, fd, o),     \
      MAP_FAILED, ENOMEM)                                                                          \
    X(munmap, int, (void *at, size_t n), (at, n), -1, ENOMEM)                                      \
    X(pread64, ssize_t, (int fd, void *to, size_t n, off_t at), (fd, to, n, at), -1, EIO)          \
    X(pwrite64, ssize_t, (int fd, const void *from, size_t n, off_t at), (fd, from, n, at), -1,    \
      ENOSPC)                                                                                      \
    X(lstat64, int, (const char *path, void *status), (path, status), -1, EACCES)                  \
    X(ftruncate64, int, (int fd, off_t n), (fd, n), -1, EIO)                                       \
    X(fcntl64, int, (int fd, int what, long with), (fd, what, with), -1, EMFILE)                   \
    X(readdir64, void *, (DIR * folder), (folder), NULL, EIO)                                      \
    X(fopencookie, FILE *, (void *with, const char *mode, cookie_io_functions_t how),              \
      (with, mode, how), NULL, ENOMEM)                                                             \
    X(fwrite, size_t, (const void *from, size_t size, size_t n, FILE *to), (from, size, n, to), 0, \
      ENOSPC)                                                                                      \
    X(getrandom, ssize_t, (void *to, size_t n, unsigned flags), (to, n, flags), -1, ENOSYS)        \
    X(socket, int, (int family, int kind, int protocol), (family, kind, protocol), -1, EMFILE)     \
    X(bind, int, (int fd, const void *address, unsigned n), (fd, address, n), -1, EADDRINUSE)      \
    X(listen, int, (int fd, int n), (fd, n), -1, EADDRINUSE)                                       \
    X(accept4, int, (int fd, void *address, void *n, int flags), (fd, address, n, flags), -1,      \
      EMFILE)                                                                                      \
    X(connect, int, (int fd, const void *address, unsigned n), (fd, address, n), -1, ECONNREFUSED) \
    X(send, ssize_t, (int fd, const void *from, size_t n, int flags), (fd, from, n, flags), -1,    \
      EPIPE)                                                                                       \
    X(recv, ssize_t, (int fd, void *to, size_t n, int flags), (fd, to, n, flags), -1, ECONNRESET)  \
    X(sendmsg, ssize_t, (int fd, const void *what, int flags), (fd, what, flags), -1, EPIPE)       \
    X(recvmsg, ssize_t, (int fd, void *what, int flags), (fd, what, flags), -1, ECONNRESET)        \
    X(process_vm_readv, ssize_t,                                                                   \
      (pid_t of, void *to, unsigned long n, void *from, unsigned long m, unsigned long flags),     \
      (of, to, n, from, m, flags), -1, EPERM)                                                      \
    X(unshare, int, (int what), (what), -1, EPERM)                                                 \
    X(poll, int, (void *which, unsigned long n, int timeout), (which, n, timeout), -1, EINTR)      \
    X(getsockopt, int, (int fd, int level, int what, void *to, void *n), (fd, level, what, to, n), \
      -1, ENOBUFS)                                                                                 \
    X(setsockopt, int, (int fd, int level, int what, const void *to, unsigned n),                  \
      (fd, level, what, to, n), -1, ENOBUFS)                                                       \
    X(backtrace, int, (void **to, int n), (to, n), 0, 0)                                           \
    X(pthread_mutex_init, int, (pthread_mutex_t * lock, const pthread_mutexattr_t *how),           \
      (lock, how), ENOMEM, 0)                                                                      \
    X(pthread_mutex_timedlock, int, (pthread_mutex_t * lock, const struct timespec *until),        \
      (lock, until), ETIMEDOUT, 0)                                                                 \
    X(pthread_attr_init, int, (pthread_attr_t * how), (how), ENOMEM, 0)                            \
    X(pthread_sigmask, int, (int how, const void *new, void *old), (how, new, old), EINVAL, 0)     \
    X(syscall, long, (long n, long a, long b, long c, long d, long e, long f),                     \
      (n, a, b, c, d, e, f), -1, ENOSYS)                                                           \
    X(madvise, int, (void *at, size_t n, int advice), (at, n, advice), -1, EINVAL)                 \
    X(open, int, (const char *path, int flags, mode_t mode), (path, flags, mode), -1, EMFILE)      \
    X(open64, int, (const char *path, int flags, mode_t mode), (path, flags, mode), -1, EMFILE)    \
    X(__open64_2, int, (const char *path, int flags), (path, flags), -1, EMFILE)                   \
    X(openat, int, (int at, const char *path, int flags, mode_t mode), (at, path, flags, mode),    \
      -1, EMFILE)                                                                                  \
    X(openat64, int, (int at, const char *path, int flags, mode_t mode), (at, path, flags, mode),  \
      -1, EMFILE)                                                                                  \
    X(opendir, DIR *, (const char *path), (path), NULL, EMFILE)                                    \
    X(fopen, FILE *, (const char *path, const char *mode), (path, mode), NULL, EMFILE)             \
    X(fopen64, FILE *, (const char *path, const char *mode), (path, mode), NULL, EMFILE)           \
    X(read, ssize_t, (int fd, void *to, size_t n), (fd, to, n), -1, EIO)                           \
    X(write, ssize_t, (int fd, const void *from, size_t n), (fd, from, n), -1, ENOSPC)             \
    X(readlink, ssize_t, (const char *path, char *to, size_t n), (path, to, n), -1, EACCES)        \
    X(getcwd, char *, (char *to, size_t n), (to, n), NULL, ENOENT)                                 \
    X(fstat64, int, (int fd, void *to), (fd, to), -1, EIO)                                         \
    X(fstat, int, (int fd, void *to), (fd, to), -1, EIO)                                           \
    X(stat64, int, (const char *path, void *to), (path, to), -1, EACCES)                           \
    X(fstatat64, int, (int at, const char *path, void *to, int f), (at, path, to, f), -1, EACCES)  \
    X(fstatfs64, int, (int fd, void *to), (fd, to), -1, EIO)                                       \
    X(posix_fallocate64, int, (int fd, off_t at, off_t n), (fd, at, n), ENOSPC, 0)                 \
    X(memfd_create, int, (const char *name, unsigned flags), (name, flags), -1, EMFILE)            \
    X(chmod, int, (const char *path, mode_t mode), (path, mode), -1, EPERM)                        \
    X(fchmod, int, (int fd, mode_t mode), (fd, mode), -1, EPERM)                                   \
    X(mkdir, int, (const char *path, mode_t mode), (path, mode), -1, ENOSPC)                       \
    X(mkdirat, int, (int at, const char *path, mode_t mode), (at, path, mode), -1, ENOSPC)         \
    X(renameat, int, (int a, const char *from, int b, const char *to), (a, from, b, to), -1, EIO)  \
    X(unlink, int, (const char *path), (path), -1, EACCES)                                         \
    X(unlinkat, int, (int at, const char *path, int flags), (at, path, flags), -1, EACCES)         \
    X(close, int, (int fd), (fd), -1, EIO)                                                         \
    X(flock, int, (int fd, int operation), (fd, operation), -1, ENOLCK)                            \
    X(getrlimit64, int, (int which, void *to), (which, to), -1, EINVAL)                            \
    X(uname, int, (void *to), (to), -1, EFAULT)                                                    \
    X(sigaction, int, (int number, const void *new, void *old), (number, new, old), -1, EINVAL)    \
    X(on_exit, int, (void (*call)(int, void *), void *with), (call, with), -1, ENOMEM)             \
    X(pthread_create, int,                                                                         \
      (pthread_t * thread, const pthread_attr_t *how, void *(*run)(void *), void *with),           \
      (thread, how, run, with), EAGAIN, 0)                                                         \
    X(pthread_attr_setstacksize, int, (pthread_attr_t * how, size_t n), (how, n), EINVAL, 0)       \
    X(pthread_key_create, int, (pthread_key_t * key, void (*end)(void *)), (key, end), EAGAIN, 0)  \
    X(pthread_setspecific, int, (pthread_key_t key, const void *value), (key, value), ENOMEM, 0)

enum {
#define X(name, type, parameters, arguments, failure, error) NUMBER_##name,
    LIST(X)
#undef X
        FUNCTIONS
};

static const char *const names[] = {
#define X(name, type, parameters, arguments, failure, error) #name,
    LIST(X)
#undef X
};
static void *real[FUNCTIONS];
static atomic_ulong *calls; /* shared with forked children, to the very end of them */
static atomic_ulong fails_at[FUNCTIONS];
static atomic_int fails_on[FUNCTIONS]; /* from there on */
static uintptr_t library, library_end;

static int find_library(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    if (!strstr(info->dlpi_name, "/libcachalot"))
        return 0;
    library = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD)
            library_end = library + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
    return 1;
}

/* FUNCTION:N or FUNCTION:N+; NULL: this process's calls do not count. */
__attribute__((visibility("default"))) void fail_libc(const char *what)
{
    if (!what)
        library = 0;
    for (int i = 0; what && i < FUNCTIONS; i++)
        if (strlen(names[i]) == strcspn(what, ":") &&
            !strncmp(names[i], what, strcspn(what, ":"))) {
            fails_on[i] = 0;
            fails_at[i] = calls[i] + strtoul(strchr(what, ':') + 1, NULL, 10);
            fails_on[i] = strchr(what, '+') != NULL;
        }
}

/* Calls counted of function i; NULL after the last. */
__attribute__((visibility("default"))) const char *fail_libc_count(int i, unsigned long *count)
{
    *count = i < FUNCTIONS ? calls[i] : 0;
    return i < FUNCTIONS ? names[i] : NULL;
}

static int fails(int number, const void *caller)
{
    uintptr_t from = (uintptr_t)caller;
    if (!library || from < library || from >= library_end)
        return 0;
    unsigned long call = ++calls[number];
    return call == fails_at[number] || (fails_on[number] && call > fails_at[number]);
}

static void *find(int number)
{
    if (!real[number])
        real[number] = dlsym(RTLD_NEXT, names[number]);
    return real[number];
}

/* dlsym may ask for memory itself. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);

__attribute__((constructor)) static void start(void)
{
    for (int i = 0; i < FUNCTIONS; i++)
        find(i);
    real[NUMBER_malloc] = (void *)__libc_malloc;
    real[NUMBER_calloc] = (void *)__libc_calloc;
    real[NUMBER_realloc] = (void *)__libc_realloc;
    calls = ((void *(*)(void *, size_t, int, int, int, off_t))real[NUMBER_mmap])(
        NULL, FUNCTIONS * sizeof *calls, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    dl_iterate_phdr(find_library, NULL);
}

static void *libc(int number)
{
    if (!real[number] && number == NUMBER_malloc)
        return (void *)__libc_malloc;
    if (!real[number] && number == NUMBER_calloc)
        return (void *)__libc_calloc;
    if (!real[number] && number == NUMBER_realloc)
        return (void *)__libc_realloc;
    return find(number);
}

#define X(name, type, parameters, arguments, failure, error)                                       \
    __attribute__((visibility("default"))) type fails_##name parameters __asm__(#name);            \
    type fails_##name parameters                                                                   \
    {                                                                                              \
        if (fails(NUMBER_##name, __builtin_return_address(0))) {                                   \
            errno = error ? error : errno;                                                         \
            return failure;                                                                        \
        }                                                                                          \
        return ((type(*) parameters)libc(NUMBER_##name))arguments;                                 \
    }
LIST(X)
#undef X
