/* File descriptors of ours in the program's table. Programs take the lowest numbers to be their own,
 * close what they do not know, and open files in its place. So ours move up at once, and are closed
 * only while they are still ours. */
#ifndef CACHALOT_STATS_OS_DESCRIPTOR_H
#define CACHALOT_STATS_OS_DESCRIPTOR_H

#include <stdint.h>

struct descriptor {
    int fd;        /* plus 1; 0: none */
    unsigned type; /* S_IFMT of its mode */
    uint64_t device, inode;
};

/* Takes over `fd`, at a number from 64 up where the table has one. Returns 0, or -1 where `fd` is
 * negative, gone, or a file of another type (S_IFMT; 0: any type). */
int descriptor_take(struct descriptor *to, int fd, unsigned type);

/* Whether the number still means the same file. */
int descriptor_is_ours(const struct descriptor *descriptor);

/* Closes it if it is still ours. */
void descriptor_close(struct descriptor *descriptor);

#endif
