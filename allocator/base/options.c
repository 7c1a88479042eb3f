/* Options: one table of keys, each with its reader; and the values as text. */
#include "allocator/base/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/policy.h"

#define LEAST_SPLIT_MB 20 /* PyTorch: at least large_segment_size_mb, which is 20 by default */
#define MOST_MB (UINT64_MAX / MIB / 2)

void options_default(struct options *options)
{
    *options = (struct options){
        .max_split_size = UINT64_MAX,
        .max_non_split_rounding = PYTORCH_LARGE_BUFFER,
        .large_segment_bytes = PYTORCH_LARGE_BUFFER,
        .expandable = EXPANDABLE_AUTO,
        .cache = 1,
        .thread_cache = 1,
        .pinned = 1,
        .idle_return = 1,
        .page_bytes = 4096,
    };
}

static int read_number(const char *text, uint64_t *number)
{
    char *end;
    if (*text < '0' || *text > '9')
        return -1;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return errno || *end ? -1 : 0;
}

/* Reads a number as PyTorch does (c10/core/AllocatorConfig.h, toSizeT: std::stoull). What follows
 * the digits is passed over (128.5 is 128), and -1 is the largest number. */
static int read_as_pytorch(const char *text, uint64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return errno || end == text ? -1 : 0;
}

static int read_fraction(const char *text, double *fraction)
{
    char *end;
    if ((*text < '0' || *text > '9') && *text != '.')
        return -1;
    double value = strtod(text, &end);
    if (*end || !(value > 0) || value > 1)
        return -1;
    *fraction = value;
    return 0;
}

/* Index of `text` in a NULL-ended list of words, ignoring case, or -1. */
static int read_word(const char *text, const char *const *words)
{
    for (int i = 0; words[i]; i++)
        if (strcasecmp(text, words[i]) == 0)
            return i;
    return -1;
}

/* Any number of MiB from LEAST_SPLIT_MB on; one that no size reaches means unlimited. */
static int read_split(const char *text, uint64_t *bytes)
{
    uint64_t n;
    if (read_as_pytorch(text, &n) || n < LEAST_SPLIT_MB)
        return -1;
    *bytes = n > MOST_MB ? UINT64_MAX : n * MIB;
    return 0;
}

static int set_max_split(struct options *o, const char *text)
{
    return read_split(text, &o->max_split_size);
}

static int set_rounding(struct options *o, const char *text)
{
    return read_split(text, &o->max_non_split_rounding);
}

static int set_segment(struct options *o, const char *text)
{
    uint64_t n;
    if (read_as_pytorch(text, &n) || n < 2 || n > MOST_MB)
        return -1;
    o->large_segment_bytes = n * MIB;
    return 0;
}

/* A power of two. A block larger than 512 bytes times 2^31 does not exist. */
static int read_divisions(const char *text, uint32_t *divisions)
{
    const uint32_t most = 1u << 31;
    uint64_t n;
    if (read_as_pytorch(text, &n) || (n & (n - 1)))
        return -1;
    *divisions = n > most ? most : (uint32_t)n;
    return 0;
}

/* Reads `[256:1,512:2,>:8]` as PyTorch does (c10/core/AllocatorConfig.cpp,
 * parseRoundUpPower2Divisions). The first size also covers all sizes below it, and `>` covers all
 * sizes above the last size. A size that no item covers is not rounded this way. */
static int read_division_list(char *list, uint32_t divisions[ROUNDUP_INTERVALS])
{
    unsigned sizes = 0, last = 0;
    char *rest;
    for (char *item = strtok_r(list, ",", &rest); item; item = strtok_r(NULL, ",", &rest)) {
        char *colon = strchr(item, ':');
        uint64_t megabytes;
        uint32_t value;
        if (!colon || read_divisions(colon + 1, &value))
            return -1;
        *colon = 0;
        unsigned begin = last + 1, end = ROUNDUP_INTERVALS;
        if (strcmp(item, ">")) {
            if (read_as_pytorch(item, &megabytes) || !megabytes || (megabytes & (megabytes - 1)))
                return -1;
            last = (unsigned)__builtin_ctzll(megabytes);
            last = last < end ? last : end - 1;
            begin = sizes++ ? last : 0;
            end = last + 1;
        }
        for (; begin < end; begin++)
            divisions[begin] = value;
    }
    return 0;
}

static int set_divisions(struct options *o, const char *text)
{
    uint32_t divisions[ROUNDUP_INTERVALS];
    char list[256];
    size_t length = strlen(text);
    memcpy(divisions, o->roundup_power2_divisions, sizeof divisions); /* a list sets a part */
    if (*text != '[') {
        if (read_divisions(text, &divisions[0]) || !divisions[0])
            return -1;
        for (unsigned i = 1; i < ROUNDUP_INTERVALS; i++)
            divisions[i] = divisions[0];
    } else {
        if (length < 2 || length >= sizeof list || text[length - 1] != ']')
            return -1;
        memcpy(list, text + 1, length - 2);
        list[length - 2] = 0;
        if (read_division_list(list, divisions))
            return -1;
    }
    memcpy(o->roundup_power2_divisions, divisions, sizeof divisions);
    return 0;
}

static int set_threshold(struct options *o, const char *text)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (errno || end == text || !(value > 0 && value < 1))
        return -1;
    o->garbage_collection_threshold = value;
    return 0;
}

static const char *const expandables[] = {"False", "True", "auto", NULL};

static int set_expandable(struct options *o, const char *text)
{
    static const char *const others[] = {"off", "on", NULL}, *const digits[] = {"0", "1", NULL};
    int mode = read_word(text, expandables);
    if (mode < 0 && (mode = read_word(text, others)) < 0)
        mode = read_word(text, digits);
    if (mode >= 0)
        o->expandable = (enum expandable)mode;
    return mode;
}

static int set_memory_fraction(struct options *o, const char *text)
{
    return read_fraction(text, &o->memory_fraction);
}

static int read_limit(const char *text, uint64_t *bytes)
{
    uint64_t n;
    if (read_number(text, &n) || n < 2 || n > MOST_MB)
        return -1;
    *bytes = n * MIB;
    return 0;
}

static int set_limit(struct options *o, const char *text)
{
    return read_limit(text, &o->memory_limit);
}

/* MiB, or with its unit: 40GiB. */
static int set_group_limit(struct options *o, const char *text)
{
    static const char *const units[] = {"MiB", "GiB", "TiB", NULL};
    char digits[24];
    uint64_t n;
    size_t length = strspn(text, "0123456789");
    int unit = text[length] ? read_word(text + length, units) : 0;
    if (unit < 0 || length >= sizeof digits)
        return -1;
    memcpy(digits, text, length);
    digits[length] = 0;
    if (read_number(digits, &n) || n > MOST_MB >> 10 * unit || n << 10 * unit < 2)
        return -1;
    o->group_limit = (n << 10 * unit) * MIB;
    return 0;
}

static const char *const free_modes[] = {"async", "fence", "strict", NULL};
static const char *const ipc_modes[] = {"auto", "dedicated", "error", NULL};
static const char *const switches[] = {"off", "on", NULL};

static int set_free_mode(struct options *o, const char *text)
{
    int mode = read_word(text, free_modes);
    if (mode >= 0)
        o->free_mode = (enum free_mode)mode;
    return mode;
}

static int set_thread_cache(struct options *o, const char *text)
{
    int on = read_word(text, switches);
    if (on >= 0)
        o->thread_cache = on;
    return on;
}

static int set_cache(struct options *o, const char *text)
{
    int on = read_word(text, switches);
    if (on >= 0)
        o->cache = on;
    return on;
}

static int set_pinned(struct options *o, const char *text)
{
    int on = read_word(text, switches);
    if (on >= 0)
        o->pinned = on;
    return on;
}

#define MOST_IDLE_S 86400

static int set_idle_return(struct options *o, const char *text)
{
    uint64_t n = 0;
    if (strcasecmp(text, "off") && (read_number(text, &n) || n < 1 || n > MOST_IDLE_S))
        return -1;
    o->idle_return = (uint32_t)n;
    return 0;
}

static int set_ipc(struct options *o, const char *text)
{
    int mode = read_word(text, ipc_modes);
    if (mode >= 0)
        o->ipc = (enum ipc_mode)mode;
    return mode;
}

static int set_fail_alloc(struct options *o, const char *text)
{
    return fail_rule_read(&o->fail_alloc, text);
}

static int set_fill(struct options *o, const char *text)
{
    return fill_rule_read(&o->fill, text);
}

static const char *const bounds[] = {"off", "warn", "refuse", NULL};
static const char *const slacks[] = {"off", "check", NULL};

static int set_bounds(struct options *o, const char *text)
{
    int mode = read_word(text, bounds);
    if (mode >= 0)
        o->bounds = (enum bounds)mode;
    return mode;
}

static int set_slack(struct options *o, const char *text)
{
    int mode = read_word(text, slacks);
    if (mode >= 0)
        o->slack = mode;
    return mode;
}

static int set_device_size(struct options *o, const char *text)
{
    uint64_t n;
    if (read_number(text, &n) || n < 64 || n > MOST_MB)
        return -1;
    o->device_size = n * MIB;
    return 0;
}

static const struct key {
    const char *name;
    int (*set)(struct options *options, const char *text); /* negative: not understood */
    const char *wants;
    int pytorch; /* also taken from PyTorch's variable */
    const char *meaning;
} keys[] = {
    {"max_split_size_mb", set_max_split, "a whole number of MiB, at least 20; -1: unlimited", 1,
     "Blocks of at least this size are not split, so that large requests find whole blocks."},
    {"max_non_split_rounding_mb", set_rounding, "a whole number of MiB, at least 20", 1,
     "A block that is not split may be larger than the request by at most this."},
    {"roundup_power2_divisions", set_divisions,
     "a power of two, or a list such as [256:1,512:2,>:8]", 1,
     "Rounds sizes up to one of so many equal steps between two powers of two. A list gives the "
     "number for each size in MiB. 1, or 0 in a list: no rounding but to 512 bytes."},
    {"garbage_collection_threshold", set_threshold, "a number above 0, below 1", 1,
     "Where more than this share of the limit is reserved, idle segments go back to the driver "
     "before new ones are taken."},
    {"large_segment_size_mb", set_segment, "a whole number of MiB, at least 2", 0,
     "Size of a segment for requests from 1 to 10 MiB. If given, also the most of a handle of "
     "mapped memory, up to 32 MiB. A handle is a part of the memory in use, by default from 2 to "
     "16 MiB."},
    {"expandable_segments", set_expandable, "auto, True or False", 0,
     "True: blocks lie in mapped memory, where holes between them can be used. False: they lie in "
     "ordinary segments. auto: as True, unless MPI or UCX is loaded, devices cannot reach each "
     "other, the device's memory cannot be exported, or with ipc:dedicated."},
    {"per_process_memory_fraction", set_memory_fraction, "a number above 0, at most 1", 0,
     "No more than this share of the device's memory is reserved."},
    {"memory_limit_mb", set_limit, "a whole number of MiB, at least 2", 0,
     "No more than this is reserved per device."},
    {"free_mode", set_free_mode, "async, fence or strict", 0,
     "async: a freed block can be used again at once on the stream that did all outstanding work. "
     "fence: only when the device has done all work submitted before the free. strict: every free "
     "waits for the device, as cudaFree does without the cache."},
    {"thread_cache", set_thread_cache, "on or off", 0,
     "off: every request takes the allocator's lock, and none is served by a thread cache."},
    {"idle_return_s", set_idle_return, "a whole number of seconds from 1 to 86400, or off", 0,
     "Memory that was idle for so long goes back to the driver, in up to twice that time. All idle "
     "memory does if nothing was allocated or freed for so long. off: it goes back when a request "
     "needs it."},
    {"cache", set_cache, "on or off", 0,
     "off: every call goes to the driver, and is only counted."},
    {"pinned", set_pinned, "on or off", 0,
     "on: pinned host memory (cudaMallocHost, cudaHostAlloc) is cached, too: at most half of the "
     "host's memory. off: the driver serves it."},
    {"ipc", set_ipc, "auto, dedicated or error", 0,
     "auto: a block is exported where it lies. dedicated: memory that may be exported gets "
     "segments of its own and the driver's own IPC handles. error: a block that does not begin "
     "its segment is not exported, as a peer could read the wrong place."},
    {"fail_alloc", set_fail_alloc,
     "N, or a list such as [every:N], [p:1%:SEED], [kind:pinned], [site:train.py:12,3]", 0,
     "Refuses allocations on purpose, as if there were no memory: the N-th, every N-th, or each "
     "with a chance that SEED makes repeatable; alone or among those of a kind (device, pinned, "
     "stream_ordered, vmm, managed, array, graph) or of a call site. 0 only counts them."},
    {"device_size_mb", set_device_size, "a whole number of MiB, at least 64", 0,
     "The program runs as on a device of that size: what there is beyond is neither free nor part "
     "of its total, and cannot be allocated. Managed memory may, and NVML shows the real device."},
    {"group_limit_mb", set_group_limit,
     "a whole number of MiB, at least 2, or a size such as 40GiB", 0,
     "All processes of a group together reserve no more than this per device. CACHALOT_GROUP names "
     "the group; else it is the Slurm job, else the cgroup. At the limit the others' idle memory "
     "goes back first."},
    {"fill", set_fill, "off, zero, nan or random:SEED", 0,
     "Memory is written before the program gets it: zeros, bytes 0xFF (NaN in each format), or a "
     "word of its own for each allocation. Blocks, pinned memory and memory of pools; not in "
     "captures. With it free_mode is fence, there are no thread caches, and a request waits for "
     "its fill. [nan,FIRST-LAST]: only those requests, others get zeros."},
    {"bounds", set_bounds, "off, warn or refuse", 0,
     "Copies and sets that run past the end of their block, or begin in memory of the cache that "
     "was freed: warn says so in the report's faults, refuse also answers invalid value."},
    {"slack", set_slack, "off or check", 0,
     "check: the bytes between a request and the end of its block are filled, and looked at when "
     "it is "
     "freed and at the exit. Bytes that were written are a fault in the report. With it free_mode "
     "is "
     "strict, there are no thread caches, and a request waits for its fill. Not in captures."},
};
#define KEYS (sizeof keys / sizeof *keys)

uint32_t options_pytorch_keys(void)
{
    uint32_t bits = 0;
    for (unsigned i = 0; i < KEYS; i++)
        bits |= (uint32_t)keys[i].pytorch << i;
    return bits;
}

const char *options_name(unsigned i)
{
    return i < KEYS ? keys[i].name : NULL;
}

const char *options_wants(unsigned i)
{
    return i < KEYS ? keys[i].wants : NULL;
}

const char *options_meaning(unsigned i)
{
    return i < KEYS ? keys[i].meaning : NULL;
}

/* May the values of this key have colons outside brackets? */
static int has_colons(int (*set)(struct options *options, const char *text))
{
    return set == set_fail_alloc || set == set_fill;
}

/* Sets one `key:value`. Returns NULL, or a text that says what is wrong with it. */
static const char *take(struct options *options, const char *name, const char *value,
                        uint32_t allowed)
{
    for (unsigned i = 0; i < KEYS; i++) {
        if (strcmp(keys[i].name, name))
            continue;
        if (!(allowed >> i & 1))
            return NULL;
        int whole = value && (*value == '[' || has_colons(keys[i].set) || !strchr(value, ':'));
        if (!whole || keys[i].set(options, value) < 0)
            return keys[i].wants;
        options->given |= 1u << i;
        return NULL;
    }
    return allowed == OPTIONS_ALL ? "no such option" : NULL;
}

/* The end of the item at `text`: the next comma outside brackets. */
static const char *item_end(const char *text)
{
    int depth = 0;
    for (; *text && (depth || *text != ','); text++)
        depth += (*text == '[') - (*text == ']');
    return text;
}

/* Copies an item without blanks, which PyTorch's parser skips too. */
static void copy_item(char *to, size_t size, const char *from, const char *end)
{
    size_t n = 0;
    for (; from < end && n + 1 < size; from++)
        if (!strchr(" \t\n\v\f\r", *from))
            to[n++] = *from;
    to[n] = 0;
}

int options_parse(struct options *options, const char *text, uint32_t allowed,
                  void (*complain)(void *context, const char *message), void *context)
{
    int complaints = 0;
    while (*text) {
        const char *end = item_end(text);
        char item[320], message[512];
        copy_item(item, sizeof item, text, end);
        char *value = strchr(item, ':');
        if (value)
            *value++ = 0;
        const char *wants = *item || value ? take(options, item, value, allowed) : NULL;
        if (wants) {
            complaints++;
            snprintf(message, sizeof message, "option %.60s:%.60s is not understood: %s", item,
                     value ? value : "", wants);
            complain(context, message);
        }
        text = *end ? end + 1 : end;
    }
    return complaints;
}

static void write_megabytes(uint64_t bytes, char *text, size_t size)
{
    if (bytes == UINT64_MAX)
        snprintf(text, size, "unlimited");
    else
        snprintf(text, size, "%llu", (unsigned long long)(bytes / MIB));
}

static void write_divisions(const uint32_t *divisions, char *text, size_t size)
{
    unsigned above = ROUNDUP_INTERVALS - 1; /* from this index on all values are equal */
    while (above > 0 && divisions[above - 1] == divisions[ROUNDUP_INTERVALS - 1])
        above--;
    if (above == 0) {
        snprintf(text, size, "%u", divisions[0]);
        return;
    }
    size_t n = (size_t)snprintf(text, size, "[");
    unsigned first = 0;
    while (divisions[first + 1] == divisions[0])
        first++;
    for (unsigned i = first; i < above && n < size; i++)
        if (divisions[i] || i == first || i + 1 == above)
            n += (size_t)snprintf(text + n, size - n, "%u:%u,", 1u << i, divisions[i]);
    if (n < size)
        snprintf(text + n, size - n, ">:%u]", divisions[above]);
}

void options_value(const struct options *o, unsigned i, char *text, size_t size)
{
    const char *name = options_name(i);
    snprintf(text, size, "off");
    if (!strcmp(name, "max_split_size_mb"))
        write_megabytes(o->max_split_size, text, size);
    else if (!strcmp(name, "max_non_split_rounding_mb"))
        write_megabytes(o->max_non_split_rounding, text, size);
    else if (!strcmp(name, "roundup_power2_divisions"))
        write_divisions(o->roundup_power2_divisions, text, size);
    else if (!strcmp(name, "garbage_collection_threshold"))
        snprintf(text, size, "%g", o->garbage_collection_threshold);
    else if (!strcmp(name, "large_segment_size_mb"))
        write_megabytes(o->large_segment_bytes, text, size);
    else if (!strcmp(name, "expandable_segments"))
        snprintf(text, size, "%s", expandables[o->expandable]);
    else if (!strcmp(name, "per_process_memory_fraction"))
        snprintf(text, size, "%g", o->memory_fraction > 0 ? o->memory_fraction : 1.0);
    else if (!strcmp(name, "memory_limit_mb") && o->memory_limit)
        write_megabytes(o->memory_limit, text, size);
    else if (!strcmp(name, "free_mode"))
        snprintf(text, size, "%s", free_modes[o->free_mode]);
    else if (!strcmp(name, "thread_cache"))
        snprintf(text, size, "%s", switches[o->thread_cache]);
    else if (!strcmp(name, "idle_return_s") && o->idle_return)
        snprintf(text, size, "%u", o->idle_return);
    else if (!strcmp(name, "cache"))
        snprintf(text, size, "%s", switches[o->cache]);
    else if (!strcmp(name, "group_limit_mb") && o->group_limit)
        write_megabytes(o->group_limit, text, size);
    else if (!strcmp(name, "pinned"))
        snprintf(text, size, "%s", switches[o->pinned]);
    else if (!strcmp(name, "ipc"))
        snprintf(text, size, "%s", ipc_modes[o->ipc]);
    else if (!strcmp(name, "device_size_mb") && o->device_size)
        write_megabytes(o->device_size, text, size);
    else if (!strcmp(name, "bounds"))
        snprintf(text, size, "%s", bounds[o->bounds]);
    else if (!strcmp(name, "slack"))
        snprintf(text, size, "%s", slacks[o->slack]);
    else if (!strcmp(name, "fill") && *o->fill.text)
        snprintf(text, size, "%s", o->fill.text);
    else if (!strcmp(name, "fail_alloc") && *o->fail_alloc.text)
        snprintf(text, size, "%s", o->fail_alloc.text);
}

uint64_t options_round(const struct options *options, uint64_t bytes)
{
    if (bytes < 512)
        return 512;
    if (bytes > UINT64_MAX / 4)
        return UINT64_MAX;
    unsigned log = 63 - (unsigned)__builtin_clzll(bytes);
    unsigned interval = log < 20 ? 0 : log - 20;
    if (interval >= ROUNDUP_INTERVALS)
        interval = ROUNDUP_INTERVALS - 1;
    uint64_t divisions = options->roundup_power2_divisions[interval];
    if (divisions > 1 && bytes > 512 * divisions) {
        uint64_t floor = (uint64_t)1 << log, step = floor / divisions;
        return step ? floor + (bytes - floor + step - 1) / step * step : bytes;
    }
    return (bytes + 511) / 512 * 512;
}

uint64_t options_handle_most(const struct options *options, uint64_t total)
{
    uint64_t most = policy.handle_most;
    for (unsigned i = 0; i < KEYS; i++)
        if (options->given >> i & 1 && keys[i].set == set_segment)
            return options->large_segment_bytes < POLICY_HANDLE_MOST ? options->large_segment_bytes
                                                                     : POLICY_HANDLE_MOST;
    while (most > 2 * MIB && most > total / policy.device_chunks_least)
        most /= 2;
    return most;
}

uint64_t options_limit(const struct options *options, uint64_t total)
{
    uint64_t limit = UINT64_MAX;
    if (options->memory_fraction > 0 && options->memory_fraction < 1)
        limit = (uint64_t)((double)total * options->memory_fraction);
    if (options->memory_limit && options->memory_limit < limit)
        limit = options->memory_limit;
    return limit ? limit : 1; /* in the report 0 means no limit */
}
