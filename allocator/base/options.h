/* Options: the settings of an allocator, in the grammar of PyTorch's PYTORCH_ALLOC_CONF
 * (`key:value,key:[k:v,…]`). */
#ifndef CACHALOT_ALLOCATOR_BASE_OPTIONS_H
#define CACHALOT_ALLOCATOR_BASE_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "allocator/base/fail_rule.h"
#include "allocator/base/fill_rule.h"
#include "allocator/base/units.h"

#define BLOCK_GRAIN 512 /* kMinBlockSize: blocks begin at multiples of it in their segment */
#define ROUNDUP_INTERVALS                                                                          \
    16 /* powers of two from 1 MiB to 64 GiB (PyTorch: kRoundUpPowerOfTwoIntervals) */

enum free_mode { FREE_ASYNC, FREE_FENCE, FREE_STRICT };
enum expandable { EXPANDABLE_FALSE, EXPANDABLE_TRUE, EXPANDABLE_AUTO };
enum ipc_mode { IPC_AUTO, IPC_DEDICATED, IPC_ERROR };

enum bounds { BOUNDS_OFF, BOUNDS_WARN, BOUNDS_REFUSE };

struct options {
    uint64_t max_split_size;         /* bytes; UINT64_MAX: unlimited */
    uint64_t max_non_split_rounding; /* bytes */
    uint64_t large_segment_bytes;
    uint64_t memory_limit;               /* bytes that may be reserved per device; 0: no limit */
    uint64_t group_limit;                /* the same for a group of processes */
    double memory_fraction;              /* of the device's memory; 0: no limit */
    double garbage_collection_threshold; /* of the limit; 0: off */
    uint32_t roundup_power2_divisions[ROUNDUP_INTERVALS]; /* 0 or 1: off */
    enum free_mode free_mode;
    enum ipc_mode ipc;
    enum expandable expandable;
    struct fail_rule fail_alloc;
    struct fill_rule fill;
    enum bounds bounds;
    int slack;            /* 1: the bytes behind each request are checked */
    uint64_t device_size; /* bytes that a device looks to have; 0: its own */
    int cache;            /* 0: only count; the driver serves every call */
    int thread_cache;     /* 0: every request takes the lock */
    int pinned;           /* 0: the driver serves pinned memory */
    uint32_t idle_return; /* seconds after which idle memory goes back to the driver; 0: never */
    uint32_t given;       /* bit i: key i of options_name was given */
    uint64_t page_bytes;  /* of the host, a power of two: no key, the caller knows it */
};

/* Sets all options to their defaults. */
void options_default(struct options *options);

/* Parses `text` over the values in `options`. A key or value that is not understood leaves the old
 * value and is reported once, by `complain(context, message)`. Only keys in the bit set `keys` are
 * taken; others are skipped silently. With OPTIONS_ALL every key is taken, and unknown keys are
 * reported. Returns the number of complaints. */
#define OPTIONS_ALL UINT32_MAX
int options_parse(struct options *options, const char *text, uint32_t keys,
                  void (*complain)(void *context, const char *message), void *context);

/* The bit set of the keys that PyTorch's own variable may set too: max_split_size_mb, rounding,
 * garbage collection. */
uint32_t options_pytorch_keys(void);

/* name: the name of key i, or NULL past the last. value: writes its value as text into `size`
 * bytes. */
const char *options_name(unsigned i);
void options_value(const struct options *options, unsigned i, char *text, size_t size);

/* For the reference pages: the values that key i takes, and what it does. */
const char *options_wants(unsigned i);
const char *options_meaning(unsigned i);

/* The bytes of a block for a request of `bytes`. They are rounded up to a multiple of 512, or to
 * the next division of a power of two. It never overflows: a request above 2^62 gives
 * UINT64_MAX. */
uint64_t options_round(const struct options *options, uint64_t bytes);

/* The bytes of the largest handle, where mapped memory has at most `total` bytes:
 * large_segment_size_mb, if that was given, but at most POLICY_HANDLE_MOST. */
uint64_t options_handle_most(const struct options *options, uint64_t total);

/* The bytes that the options allow to be reserved on a device of `total` bytes; UINT64_MAX: no
 * limit. */
uint64_t options_limit(const struct options *options, uint64_t total);

#endif
