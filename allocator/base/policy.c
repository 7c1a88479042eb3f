/* The policy's defaults, and its table, by which numbers are listed and set by name. */
#include "allocator/base/policy.h"

#include <string.h>

#include "allocator/base/device.h"

#define X(type, name, value, unit, family, trades, measured) .name = value,
static const struct policy defaults = {POLICY_LIST(X)};
struct policy policy = {POLICY_LIST(X)};
#undef X

#define X(name, ns, what) .name = ns,
static const struct device_costs default_costs = {DEVICE_COSTS(X)};
struct device_costs device_costs = {DEVICE_COSTS(X)};
#undef X

static const struct policy_row rows[] = {
#define X(type, name, value, unit, family, trades, measured)                                       \
    {#name, unit, family, trades, measured, (uint64_t)(value), 0},
    POLICY_LIST(X)
#undef X
#define X(name, ns, what) {"price_" #name, "ns", "driver's prices", what, "record", ns, 0},
        DEVICE_COSTS(X)
#undef X
#define X(name, value, of_pytorch) {#name, "bytes", "PyTorch's rules", of_pytorch, "", value, 1},
            POLICY_PYTORCH(X)
#undef X
};

unsigned policy_count(void)
{
    return sizeof rows / sizeof *rows;
}

const struct policy_row *policy_row(unsigned i)
{
    return &rows[i];
}

/* What is divided by, or a modulus, may not be 0; varied_sizes has an array of its size. */
static int is_allowed(const char *name, uint64_t value)
{
    for (unsigned i = 0; i < policy_count(); i++)
        if (!strcmp(rows[i].name, name))
            return !rows[i].is_fixed && (value || strcmp(rows[i].unit, "1/n")) &&
                   (strcmp(name, "varied_sizes") || (value && value <= POLICY_VARIED_SIZES)) &&
                   (strcmp(name, "handle_most") || (value && value <= POLICY_HANDLE_MOST));
    return 0;
}

int policy_set(const char *name, uint64_t value)
{
    if (value > INT64_MAX || !is_allowed(name, value))
        return -1;
#define X(type, field, initial, unit, family, trades, measured)                                    \
    if (!strcmp(name, #field)) {                                                                   \
        if ((uint64_t)(type)value != value)                                                        \
            return -1;                                                                             \
        policy.field = (type)value;                                                                \
    }
    POLICY_LIST(X)
#undef X
#define X(field, ns, what)                                                                         \
    if (!strcmp(name, "price_" #field))                                                            \
        device_costs.field = value;
    DEVICE_COSTS(X)
#undef X
    return 0;
}

void policy_reset(void)
{
    policy = defaults;
    device_costs = default_costs;
}
