/* The live bytes of mapped memory, as runs of addresses. */
#ifndef CACHALOT_INTERPOSE_SLEEP_LIVE_H
#define CACHALOT_INTERPOSE_SLEEP_LIVE_H

#include <stddef.h>
#include <stdint.h>

struct context;

/* `at`: where the run's bytes lie among all bytes that are moved. */
struct run {
    uint64_t address, bytes, at;
    struct context *context;
};

struct live {
    struct run *run;
    size_t count, room;
    uint64_t bytes;
    uint64_t ordinary_bytes; /* live in ordinary segments */
    uint64_t segment;        /* of the last block */
    size_t wanted;           /* runs, whether there was room or not */
};

/* Lists them. Returns 0, or -1 without host memory. drop: gives the list's memory back. */
int live_list(struct live *live);
void live_drop(struct live *live);

/* The index of the run that has byte `at`, which is below live->bytes. */
size_t live_find(const struct live *live, uint64_t at);

#endif
