/* The live page: every number of one process, in a mapped file on tmpfs that outlives it.
 *
 * Whatever ends the process (exit, _exit, a signal, SIGKILL, exec), the page stays and becomes the
 * same report. It describes itself: `fields` names every number with offset and unit, so that a
 * reader needs no header of ours. Format 1. Sizes in bytes, times in ns. Text is UTF-8 or whatever
 * the host gave, always ended by NUL. Written by one process only; a forked child does not have it
 * (MADV_DONTFORK).
 */
#ifndef CACHALOT_STATS_PAGE_PAGE_H
#define CACHALOT_STATS_PAGE_PAGE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "stats/page/layout.h"

/* What there is to be room for: rows of devices, and events (events.h), a power of two or 0, of
 * which reports show so many. */
struct page_shape {
    unsigned devices, events, shown;
    unsigned sites; /* of how many requests one is looked at for its call site; 0: no sites */
};

/* Makes and maps the page of this process in `directory` (NULL: /dev/shm/cachalot-UID, made 0700
 * and its owner checked); preallocated, mode 0600, named PID.START.GENERATION.page. Where that is
 * not possible it is an anonymous memfd, and *problem (static text) says why. Returns NULL with
 * errno if even that failed. */
struct page *page_create(const char *directory, struct page_shape shape, const char **problem);

/* Unmaps, and removes the file if `remove`. */
void page_close(struct page *page, int remove);

/* Opens a page file after checking owner, mode, magic, size and every count in it. For reading
 * it is a private copy in which every text ends; `writable` (for requests) it is the mapped
 * file, whose texts may not. Returns NULL, and in *problem what the file "is", "has" or
 * "cannot". */
struct page *page_open(const char *path, int writable, const char **problem);

/* Is the process that wrote `page` alive, not replaced by exec, in this pid namespace? path: the
 * page's. */
int page_is_alive(const struct page *page, const char *path);

/* Was `page` written in this pid namespace? If not, nobody here can tell whether its process
 * lives. */
int page_is_here(const struct page *page);

/* Are they of one run? A run within a run has its session, and more behind a slash. */
int page_is_of_run(const struct page *page, const char *session);

/* /dev/shm/cachalot-UID, into `buffer`. */
#define PAGE_DIRECTORY_SIZE 40
const char *page_directory(char *buffer, size_t size);

/* Did the process end while it made this page (a name in `directory`)? Nothing was counted then. */
int page_is_unmade(int directory, const char *name);

/* Removes some of this user's pages in `directory` (NULL: the usual) that are dead and older than
 * `seconds`: a few at a time, so that a start takes no time. */
void page_remove_old(const char *directory, uint64_t seconds);

/* Adds a warning (printf-like): the same text again is counted, not added; text beyond the room
 * is counted in warnings_lost. Safe from any thread; takes no lock and allocates nothing. */
void page_warn(struct page *page, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What holds of an option where that is not what was asked for: `ASKED: VALUE, because of WHY` (NULL:
 * without a reason). One thread at a time. */
void page_config_in_force(struct page *page, const char *option, const char *value,
                          const char *why);

#endif
