/* The books of a group: what its processes have of one device, in a file beside their pages. Each
 * process has a line, which it alone writes. It holds a lock of the kernel on that line as long as it
 * maps the file, so a line without a lock is a dead process's, in whatever pid namespace it was.
 *
 * To claim memory a process first notes the claim as pending, and then adds up all lines. It may have
 * the memory if the sum fits, pending claims of others included. Of two that claim at once at least
 * one sees the other's claim, so the sum never exceeds the limit. No lock is held meanwhile: a
 * process that is stopped in a claim delays nobody. */
#ifndef CACHALOT_STATS_PAGE_GROUP_H
#define CACHALOT_STATS_PAGE_GROUP_H

#include "stats/page/page.h"

#define GROUP_MEMBERS 1000

struct group_line {
    stat_value held, pending; /* bytes */
};

struct group_books {
    stat_value magic;
    struct group_line line[GROUP_MEMBERS];
};

/* A process's place in the books of one device. Zeroes: it has none. */
struct group {
    struct group_books *books; /* shared with others: anything may be found there */
    uint64_t limit, held;      /* bytes; held: what the own line says */
    uint64_t file[2];          /* device and inode of the books */
    unsigned own;              /* the own line */
    char path[sizeof(((struct page *)NULL)->path)];
};

/* A number for the group: of its `name`, or of the process's cgroup where `name` is empty. Never 0.
 * Opens files. */
uint64_t group_number(const char *name);

/* Opens the books of group `number` beside the own page, and takes a line. Returns NULL, or what is
 * wrong, which goes on a sentence about the group's limit. Opens files, and keeps no descriptor. */
const char *group_open(struct group *group, const struct page *own, const char *uuid,
                       uint64_t number);

/* Claims `bytes`. GROUP_BUSY: they may fit once pending claims of others are over. The caller
 * excludes other claims and gives of this process, and waits before it tries again. */
enum group_answer { GROUP_HAS, GROUP_BUSY, GROUP_FULL, GROUP_DAMAGED };
enum group_answer group_claim(struct group *group, uint64_t bytes);
void group_give(struct group *group, uint64_t bytes);

/* What all processes of the group have; UINT64_MAX: the books are damaged. */
uint64_t group_bytes(const struct group *group);

/* Strikes out the lines of dead processes. Returns whether there were any, or -1 if the file is not
 * the one that is mapped: others may have no part in these books. Opens files. */
int group_bury(const struct group *group);

/* Removes the books `name` in `directory` if no process has a line. */
void group_remove(int directory, const char *name);

#endif
