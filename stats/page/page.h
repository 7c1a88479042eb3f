/* The live page: every number of one process, in a mapped file on tmpfs that outlives the process.
 *
 * Whatever ends the process (exit, _exit, a signal, SIGKILL, exec), the page stays and becomes the
 * same report. It describes itself: its table of fields names every number with offset and unit, so
 * that a reader needs no header of ours. Format 1. Sizes are in bytes, times in ns. Text is what the
 * host gave, mostly UTF-8, always ended by NUL. One process writes the page; a forked child does not
 * have it (MADV_DONTFORK).
 */
#ifndef CACHALOT_STATS_PAGE_PAGE_H
#define CACHALOT_STATS_PAGE_PAGE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "stats/page/layout.h"

/* What the page has room for: rows of devices, and events (events/events.h), a power of two or 0.
 * Reports show the last `shown` events. */
struct page_shape {
    unsigned devices, events, shown;
    unsigned sites; /* one in so many requests has its call site sampled; 0: no sites */
};

/* Makes and maps the page of this process in `directory` (NULL: /dev/shm/cachalot-UID, which it makes
 * with mode 0700 and whose owner it checks). The file is preallocated, has mode 0600 and the name
 * PID.START.GENERATION.page. Where that is not possible the page is an anonymous memfd, and *problem
 * (static text) says why. Returns NULL with errno if that failed too. One thread at a time. */
struct page *page_create(const char *directory, struct page_shape shape, const char **problem);

/* Shows readers a part of the head, or all of it, as it is now. The process changes the head and tells
 * that; until then a reader finds what was told before. */
void page_tell(struct page *page, const void *what, size_t bytes);
void page_tell_all(struct page *page);
#define PAGE_TELL(page, field) page_tell(page, &(page)->field, sizeof(page)->field)

/* Removes the file of this process's own page; the page stays mapped. */
void page_remove(const struct page *page);

/* Unmaps, and removes the file if `remove`. */
void page_close(struct page *page, int remove);

/* A private copy of a page file, after a check of owner, mode, size, magic and every count in it.
 * Every text in it ends. Returns NULL on error; *problem then goes on a sentence about the file:
 * "is …", "has …" or "cannot …". asks: the file's descriptor, for a request to its process; NULL: for
 * reading only. page_close frees the copy. */
struct page *page_open(const char *path, int *asks, const char **problem);

/* The same of an open file. */
struct page *page_read(int fd, const char **problem);

/* A private copy of this process's own page, for a report: what the head says is the process's own,
 * the numbers belong together, and every text ends. Events and sites are not copied. Returns NULL
 * where there is no memory. page_close frees it. */
struct page *page_copy(const struct page *page);

/* Whether the process that wrote `page` is alive, in this pid namespace, and not replaced by exec.
 * path: the page's. */
int page_is_alive(const struct page *page, const char *path);

/* Whether `page` was written in this pid namespace. If not, nothing here can tell whether its process
 * lives. */
int page_is_here(const struct page *page);

/* Whether the page's process belongs to the run `session`. A run within a run has the outer run's
 * session, a slash, and more. */
int page_is_of_run(const struct page *page, const char *session);

/* /dev/shm/cachalot-UID, into `buffer`. */
#define PAGE_DIRECTORY_SIZE 40
const char *page_directory(char *buffer, size_t size);

/* Whether the process ended while it made this page (a name in `directory`): nothing was counted. */
int page_is_unmade(int directory, const char *name);

/* Removes pages of this user in `directory` (NULL: the usual) whose processes are dead and that are
 * older than `seconds`. It opens a few pages only, so that a start stays fast. */
void page_remove_old(const char *directory, uint64_t seconds);

/* Adds a warning (printf-like). A text that is there already is counted, a text without room is
 * counted in warnings_lost. Safe from any thread; takes no lock and allocates nothing. */
void page_warn(struct page *page, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Notes the value that an option has where it differs from the given one, as `GIVEN: VALUE, because of
 * WHY`; why NULL: without a reason. One thread at a time. */
void page_config_in_force(struct page *page, const char *option, const char *value,
                          const char *why);

#endif
