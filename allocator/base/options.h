/* Options: what may be set, in the grammar of PyTorch's PYTORCH_ALLOC_CONF
 * (`key:value,key:[k:v,…]`). */
#ifndef CACHALOT_ALLOCATOR_BASE_OPTIONS_H
#define CACHALOT_ALLOCATOR_BASE_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "allocator/base/units.h"

#define BLOCK_GRAIN 512 /* kMinBlockSize: blocks begin at multiples of it in their segment */
#define ROUNDUP_INTERVALS                                                                          \
    16 /* powers of two from 1 MiB to 64 GiB (PyTorch: kRoundUpPowerOfTwoIntervals) */

enum free_mode { FREE_ASYNC, FREE_FENCE, FREE_STRICT };
enum expandable { EXPANDABLE_FALSE, EXPANDABLE_TRUE, EXPANDABLE_AUTO };
enum ipc_mode { IPC_AUTO, IPC_DEDICATED, IPC_ERROR };

struct options {
    uint64_t max_split_size;         /* bytes; UINT64_MAX: unlimited */
    uint64_t max_non_split_rounding; /* bytes */
    uint64_t large_segment_bytes;
    uint64_t memory_limit;               /* bytes that may be reserved per device; 0: no limit */
    double memory_fraction;              /* of the device's memory; 0: no limit */
    double garbage_collection_threshold; /* of the limit; 0: off */
    uint32_t roundup_power2_divisions[ROUNDUP_INTERVALS]; /* 0 or 1: off */
    enum free_mode free_mode;
    enum ipc_mode ipc;
    enum expandable expandable;
    int cache;        /* 0: count only, every call native */
    int thread_cache; /* 0: every request takes the lock */
    uint32_t given;   /* bit i: key i of options_name was given */
};

void options_default(struct options *options);

/* Parses `text` over what `options` holds. A key or value that is not understood leaves what stood
 * there and is reported once, by `complain(context, message)`. `keys`: only keys of this bit set
 * are taken, others are passed over in silence (OPTIONS_ALL: every key counts, unknown ones are
 * reported). Returns the number of complaints. */
#define OPTIONS_ALL UINT32_MAX
int options_parse(struct options *options, const char *text, uint32_t keys,
                  void (*complain)(void *context, const char *message), void *context);

/* The keys that PyTorch's own variable may set for us: max_split_size_mb, rounding, garbage
 * collection. */
uint32_t options_pytorch_keys(void);

/* Name of key i, or NULL past the last; its present value as text. */
const char *options_name(unsigned i);
void options_value(const struct options *options, unsigned i, char *text, size_t size);

/* For the reference pages: the values that key i takes, and what it does. */
const char *options_wants(unsigned i);
const char *options_meaning(unsigned i);

/* A request of `bytes` as a block: a multiple of 512, or the next division of a power of two. Never
 * overflows: requests above 2^62 come back as UINT64_MAX. */
uint64_t options_round(const struct options *options, uint64_t bytes);

/* Mapped memory, `total` bytes at most, comes in chunks of this size, and several of them in one handle of
 * the driver's, up to *largest: both large_segment_size_mb if that was given, else what is the best of
 * footprint and cost (test/replay/footprint.md). */
uint64_t options_chunk_bytes(const struct options *options, uint64_t total, uint64_t *largest);

/* The most that may be reserved for a device of `total` bytes by the options; UINT64_MAX: no
 * limit. */
uint64_t options_limit(const struct options *options, uint64_t total);

#endif
