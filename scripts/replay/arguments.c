#include "scripts/replay/arguments.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/policy.h"

/* -1: it is none, or larger than `most`; then 0. */
static int read_number(const char *text, uint64_t most, uint64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoull(text, &end, 10);
    if (isdigit((unsigned char)*text) && !*end && !errno && *number <= most)
        return 0;
    *number = 0;
    return -1;
}

/* `NAME=NUMBER` */
static int set_policy(char *text)
{
    char *value = strchr(text, '=');
    uint64_t number;
    if (!value || read_number(value + 1, UINT64_MAX, &number))
        return -1;
    *value = 0;
    return policy_set(text, number);
}

static const struct option known[] = {
    {"conf", required_argument, NULL, 'o'},   {"capacity", required_argument, NULL, 'c'},
    {"costs", required_argument, NULL, 'p'},  {"name", required_argument, NULL, 'n'},
    {"kind", required_argument, NULL, 'k'},   {"recorded-reserved", required_argument, NULL, 'r'},
    {"device", required_argument, NULL, 'd'}, {"behind", required_argument, NULL, 'b'},
    {"parent", required_argument, NULL, 'P'}, {"policy", required_argument, NULL, 'N'},
    {"progress", no_argument, NULL, 'g'},     {"print-costs", no_argument, NULL, 'C'},
    {"policies", no_argument, NULL, 'l'},     {NULL, 0, NULL, 0},
};

int arguments_read(int argc, char **argv, struct arguments *arguments, struct replay *replay)
{
    int bad = 0;
    uint64_t number;
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (c) {
        case 'o':
            arguments->conf = optarg;
            break;
        case 'c':
            bad |= read_number(optarg, REPLAY_NO_CAPACITY, &replay->capacity) || !replay->capacity;
            replay->has_capacity = 1;
            break;
        case 'p':
            arguments->costs = optarg;
            break;
        case 'n':
            replay->name = optarg;
            break;
        case 'k':
            replay->kind = optarg;
            break;
        case 'r':
            bad |= read_number(optarg, UINT64_MAX, &replay->recorded_reserved);
            break;
        case 'd':
            bad |= read_number(optarg, INT_MAX, &number);
            replay->feed.trace.device = (int)number;
            replay->device_is_chosen = 1;
            break;
        case 'b':
            bad |= read_number(optarg, INT64_MAX, &replay->device.behind);
            break;
        case 'P':
            bad |= read_number(optarg, INT_MAX, &number);
            arguments->parent = (pid_t)number;
            break;
        case 'N':
            bad |= set_policy(optarg);
            break;
        case 'g':
            arguments->progress = 1;
            break;
        case 'C':
            arguments->print_costs = 1;
            break;
        case 'l':
            arguments->policies = 1;
            break;
        default:
            bad = 1;
        }
    }
    arguments->path = argv[optind];
    return bad || argc - optind != !(arguments->print_costs || arguments->policies) ? -1 : 0;
}
