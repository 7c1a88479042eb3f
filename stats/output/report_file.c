/* Putting a report into its file: which name it gets, whose file it may replace, and a temporary
 * file that is renamed, so that the report is there whole or not at all. */
#include "stats/output/report_file.h"

#include "stats/os/create.h"
#include "stats/os/file_limit.h"
#include "stats/output/directory.h"
#include "stats/output/report_identity.h"
#include "stats/report/document.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

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
    char wanted[OUTPUT_PATH_BYTES], suffix[OUTPUT_SUFFIX_BYTES], number[16] = "";
    int numbered = wanted_path(page, options, wanted, sizeof wanted);
    if (numbered < 0 || wanted[0] == '\0')
        return numbered < 0 ? -ENAMETOOLONG : -ENOENT;
    size_t length = strlen(wanted);
    int json = length > 5 && strcmp(wanted + length - 5, ".json") == 0;
    output_add_suffix(page, attempt, suffix, sizeof suffix);
    if (!numbered && (options->kind == REPORT_SIGNAL || options->kind == REPORT_REQUEST))
        snprintf(number, sizeof number, ".%u", (unsigned)page->sequence);
    int n = snprintf(path, size, "%.*s%s%s%s", (int)(json ? length - 5 : length), wanted, suffix,
                     number, json ? ".json" : "");
    return n > 0 && (size_t)n < size ? 0 : -ENAMETOOLONG;
}

/* Whether `report`, of the process of `page`, may replace the open file. first: the name is the wanted
 * one. Another name of a last report may be that of a snapshot: r.1.json, of process 1. */
static int may_replace(int directory, const char *name, int fd, const char *report,
                       const struct page *page, int first)
{
    char head[REPORT_HEAD_BYTES];
    struct report_identity there, ours;
    ssize_t n = pread(fd, head, sizeof head - 1, 0);
    head[n > 0 ? n : 0] = '\0';
    if (n == 0) /* an empty file holds nothing that could be lost */
        return output_claim(directory, name, fd);
    if (!report_identify(head, &there) || !report_identify(report, &ours))
        return 0;
    if (report_is_same(&there, &ours))
        return ours.final && (there.final || first);
    return page->session[0] != '\0' && !ours.harvest && report_run_is_over(&there, page) &&
           output_claim(directory, name, fd);
}

int report_file_take(int directory, const char *name, unsigned owner, const char *report,
                     const struct page *page, int first)
{
    int fd = output_open_taken(directory, name, owner);
    if (fd < 0)
        return fd;
    if (may_replace(directory, name, fd, report, page, first))
        return fd;
    close(fd);
    return -EEXIST;
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

/* Renames the temporary file to a name that nothing has. Where the file system cannot refuse to
 * replace a file, an empty one of our own takes the name first. Returns 0, -EEXIST or another -errno. */
static int put_new(int directory, const char *temporary, const char *name)
{
    if (syscall(SYS_renameat2, directory, temporary, directory, name, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    int fd = create_new_file(directory, name, 0644), error = 0;
    if (fd < 0)
        return fd;
    /* Another process may replace the empty file, but only under a lock. */
    if (!output_claim(directory, name, fd) &&
        (errno == EWOULDBLOCK || errno == ENOENT || errno == 0))
        error = -EEXIST;
    else if (renameat(directory, temporary, directory, name) != 0)
        error = -errno;
    close(fd);
    return error;
}

struct output {
    const struct page *page;
    const struct report_options *options;
    const char *text;
    int directory, file; /* the temporary one, until it is written, else -1 */
    unsigned owner;
    char temporary[48];
};

static int write_once(struct output *output)
{
    int error = 0;
    if (output->file >= 0) {
        error = write_all(output->file, output->text, strlen(output->text));
        if (close(output->file) != 0 && error == 0) /* a full network file system says so here */
            error = -errno;
        output->file = -1;
    }
    return error;
}

/* Gives the report that name. Returns 0, -EEXIST if it is to take another one, or another -errno. */
static int put(struct output *output, const char *path, int first)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    int error = -EEXIST;
    /* The second look: another process may just have put a report of the same process there. */
    for (int look = 0; error == -EEXIST && look < 2; look++) {
        int old = report_file_take(output->directory, name, output->owner, output->text,
                                   output->page, first);
        if (old < 0 && old != -ENOENT)
            return old;
        if (output->options->announce != NULL && look == 0)
            output->options->announce(path);
        error = write_once(output);
        if (error == 0 && old < 0)
            error = put_new(output->directory, output->temporary, name);
        else if (error == 0 &&
                 renameat(output->directory, output->temporary, output->directory, name) != 0)
            error = errno == EPERM || errno == EACCES ? -EEXIST : -errno; /* a sticky directory */
        if (old >= 0)
            close(old); /* and with it the claim */
    }
    return error;
}

static int put_in_place(struct output *output, char *path, size_t size)
{
    int error = -EEXIST;
    for (unsigned attempt = 0; error == -EEXIST && attempt < OUTPUT_NAMES; attempt++) {
        error = report_file_name(output->page, output->options, attempt, path, size);
        if (error == 0)
            error = put(output, path, attempt == 0);
    }
    return error;
}

/* Opens a new temporary file. Its owner is the owner of our files in that directory; on a network file
 * system that may be another user than the process has. */
static int open_temporary(struct output *output)
{
    struct stat status;
    char random[17];
    if (!file_limit_allows(strlen(output->text)))
        return -EFBIG;
    create_random_name(random);
    snprintf(output->temporary, sizeof output->temporary, ".cachalot.%s.tmp", random);
    output->file = create_new_file(output->directory, output->temporary, 0644);
    if (output->file < 0)
        return output->file;
    output->owner = fstat(output->file, &status) == 0 ? status.st_uid : geteuid();
    return 0;
}

static int write_text(const char *text, const struct page *page,
                      const struct report_options *options, char *path, size_t size)
{
    const char *name;
    struct output output = {.page = page, .options = options, .text = text, .file = -1};
    int error = report_file_name(page, options, 0, path, size);
    output.directory = error == 0 ? output_directory_open(page, path, &name) : error;
    if (output.directory < 0)
        return output.directory;
    error = open_temporary(&output);
    if (error == 0)
        error = put_in_place(&output, path, size);
    if (output.file >= 0)
        close(output.file);
    if (error != 0 && output.temporary[0] != '\0')
        unlinkat(output.directory, output.temporary, 0);
    close(output.directory);
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
