/* Putting a report into its file: which name it gets, whose file it may replace, and a temporary
 * file that is renamed, so that the report is there whole or not at all. */
#include "stats/output/report_file.h"

#include "stats/os/file_limit.h"
#include "stats/os/proc.h"
#include "stats/output/directory.h"
#include "stats/page/page.h"
#include "stats/report/document.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXISTING_BYTES_MOST ((off_t)64 << 20)

/* %n and %% of page->output (report_expand left them); returns whether %n was among them, or -1. */
static int expand_number(const struct page *page, char *path, size_t size)
{
    int numbered = 0;
    size_t to = 0;
    for (const char *from = page->output; *from != '\0'; from++) {
        int n = 1;
        if (from[0] == '%' && from[1] == 'n')
            n = snprintf(path + to, size - to, "%u", (unsigned)page->sequence);
        else
            path[to] = *from;
        if (from[0] == '%' && (from[1] == 'n' || from[1] == '%')) {
            numbered |= from[1] == 'n';
            from++;
        }
        to += (size_t)n;
        if (to + 16 > size)
            return -1;
    }
    path[to] = '\0';
    return numbered;
}

/* The wanted path: the one of the options, literally, or the page's. Returns as expand_number. */
static int wanted_path(const struct page *page, const struct report_options *options, char *path,
                       size_t size)
{
    if (options->output == NULL)
        return expand_number(page, path, size);
    return snprintf(path, size, "%s", options->output) < (int)size ? 0 : -1;
}

int report_file_name(const struct page *page, const struct report_options *options,
                     unsigned attempt, char *path, size_t size)
{
    char wanted[OUTPUT_PATH_BYTES], pid[32] = "", again[16] = "", number[16] = "";
    int numbered = wanted_path(page, options, wanted, sizeof wanted);
    if (numbered < 0 || wanted[0] == '\0')
        return numbered < 0 ? -ENAMETOOLONG : -ENOENT;
    size_t length = strlen(wanted);
    int json = length > 5 && strcmp(wanted + length - 5, ".json") == 0;
    if (attempt > 0)
        snprintf(pid, sizeof pid, ".%llu", (unsigned long long)page->pid);
    if (attempt > 1)
        snprintf(again, sizeof again, ".%u", attempt - 1);
    if (!numbered && (options->kind == REPORT_SIGNAL || options->kind == REPORT_REQUEST))
        snprintf(number, sizeof number, ".%u", (unsigned)page->sequence);
    int n = snprintf(path, size, "%.*s%s%s%s%s", (int)(json ? length - 5 : length), wanted, pid,
                     again, number, json ? ".json" : "");
    return n > 0 && (size_t)n < size ? 0 : -ENAMETOOLONG;
}

static char *read_whole(int fd, size_t size)
{
    char *text = malloc(size + 1);
    size_t have = 0;
    while (text != NULL && have < size) {
        ssize_t n = read(fd, text + have, size - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    if (text != NULL)
        text[have] = '\0';
    return text;
}

static uint64_t number_of(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static int is_same_process(const json_t *writer, const struct page *page)
{
    return number_of(writer, "pid") == page->pid &&
           number_of(writer, "start_ticks") == page->start_ticks &&
           number_of(writer, "pid_namespace") == page->pid_namespace &&
           strcmp(text_of(writer, "hostname"), page->hostname) == 0;
}

/* On another host or in another pid namespace a writer that has not written its last report may
 * live. */
static int writer_lives(const json_t *report, const json_t *writer, const struct page *page)
{
    const char *kind = text_of(report, "kind");
    if (strcmp(kind, "harvest") == 0)
        return 0;
    if (strcmp(text_of(writer, "hostname"), page->hostname) != 0 ||
        number_of(writer, "pid_namespace") != proc_namespace())
        return strcmp(kind, "exit") != 0;
    return proc_is_alive(number_of(writer, "pid"), number_of(writer, "start_ticks"));
}

static int is_replaceable(const char *text, const struct page *page)
{
    json_t *report = json_loads(text, JSON_DISABLE_EOF_CHECK, NULL);
    const json_t *writer = json_object_get(report, "process");
    int replaceable = 1;
    if (is_same_process(writer, page)) {
        /* A later report of the same process replaces an earlier one. An exec keeps pid and start,
         * but the report from before it stays. */
        replaceable = number_of(writer, "generation") == page->generation;
    } else if (number_of(writer, "pid") != 0) {
        replaceable = !page_is_of_run(page, text_of(writer, "session")) &&
                      !writer_lives(report, writer, page);
    }
    json_decref(report);
    return replaceable;
}

static int check_existing(int fd, const struct page *page)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return -EINVAL;
    if (status.st_size > EXISTING_BYTES_MOST)
        return 0; /* too large for a report: the user's data */
    char *text = read_whole(fd, (size_t)status.st_size);
    int replaceable = text != NULL ? is_replaceable(text, page) : -ENOMEM;
    free(text);
    return replaceable;
}

int report_file_may_replace(int directory, const char *name, const struct page *page)
{
    struct stat status;
    if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 1 : -errno;
    if (!S_ISREG(status.st_mode))
        return S_ISDIR(status.st_mode) ? -EISDIR : S_ISLNK(status.st_mode) ? -ELOOP : -EINVAL;
    int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    int fd = openat(directory, name, flags);
    if (fd < 0)
        return errno == ENOENT ? 1 : errno == EACCES ? 0 : -errno;
    int answer = check_existing(fd, page);
    close(fd);
    return answer;
}

static int write_all(int fd, const char *text, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, text, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        text += n;
        size -= (size_t)n;
    }
    return 0;
}

static int create_temporary(int directory, char *name, size_t size)
{
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    for (unsigned i = 0; i < OUTPUT_NAMES; i++) {
        snprintf(name, size, ".cachalot.%ld.%u.tmp", (long)getpid(), i);
        int fd = openat(directory, name, flags, 0644);
        if (fd >= 0)
            return fd;
        if (errno != EEXIST)
            return -errno;
    }
    return -EEXIST;
}

/* Writes `text` into a new file of the directory. Returns 0 with its name in `temporary`, or
 * -errno. */
static int write_file(int directory, const char *text, char *temporary, size_t size)
{
    size_t length = strlen(text);
    if (!file_limit_allows(length))
        return -EFBIG;
    int fd = create_temporary(directory, temporary, size);
    if (fd < 0)
        return fd;
    int error = write_all(fd, text, length);
    if (close(fd) != 0 && error == 0) /* a full network file system says so here */
        error = -errno;
    if (error != 0)
        unlinkat(directory, temporary, 0);
    return error;
}

/* Renames the temporary file to the first name that it may have. */
static int put_in_place(int directory, const char *temporary, const struct page *page,
                        const struct report_options *options, char *path, size_t size)
{
    int error = -EEXIST;
    for (unsigned attempt = 0; attempt < OUTPUT_NAMES; attempt++) {
        int answer = report_file_name(page, options, attempt, path, size);
        if (answer < 0)
            return answer;
        const char *slash = strrchr(path, '/');
        const char *name = slash != NULL ? slash + 1 : path;
        answer = report_file_may_replace(directory, name, page);
        if (answer < 0)
            return answer;
        if (answer > 0 && renameat(directory, temporary, directory, name) == 0)
            return 0;
        if (answer > 0 && errno != EPERM && errno != EACCES) /* a sticky directory */
            return -errno;
        if (answer > 0)
            error = -errno;
    }
    return error;
}

static int write_text(const char *text, const struct page *page,
                      const struct report_options *options, char *path, size_t size)
{
    char temporary[64];
    const char *name;
    int error = report_file_name(page, options, 0, path, size);
    int directory = error == 0 ? output_directory_open(page, path, &name) : error;
    if (directory < 0)
        return directory;
    error = write_file(directory, text, temporary, sizeof temporary);
    if (error == 0) {
        output_directory_lock(directory);
        error = put_in_place(directory, temporary, page, options, path, size);
        if (error != 0)
            unlinkat(directory, temporary, 0);
    }
    close(directory); /* and with it the lock */
    return error;
}

/* CACHALOT_OUTPUT=/dev/null counts as written. */
static int is_unwanted(const struct page *page, const struct report_options *options)
{
    return options->output == NULL && strcmp(page->output, "/dev/null") == 0;
}

int report_write(const struct snapshot *snapshot, const struct report_options *options, char *path,
                 size_t size)
{
    if (is_unwanted(snapshot->page, options)) {
        snprintf(path, size, "/dev/null");
        return 0;
    }
    int before = errno;
    char *text = report_text(snapshot, options);
    int error = text != NULL ? write_text(text, snapshot->page, options, path, size) : -ENOMEM;
    free(text);
    errno = before;
    return error;
}
