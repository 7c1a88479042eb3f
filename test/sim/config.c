#include "config.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct sim_config values;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static unsigned long long number(const char *name, unsigned long long otherwise)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return otherwise;
    char *end;
    unsigned long long value = strtoull(text, &end, 0);
    switch (*end) {
    case 'G':
    case 'g':
        return value << 30;
    case 'M':
    case 'm':
        return value << 20;
    case 'K':
    case 'k':
        return value << 10;
    default:
        return value;
    }
}

static void read_environment(void)
{
    const char *clock = getenv("CACHALOT_SIM_CLOCK");
    values.devices = (int)number("CACHALOT_SIM_DEVICES", 1);
    if (values.devices > SIM_DEVICES_MAX)
        values.devices = SIM_DEVICES_MAX;
    values.capacity = number("CACHALOT_SIM_CAPACITY", 8ull << 30);
    values.pinned = number("CACHALOT_SIM_PINNED", SIZE_MAX / 2);
    values.latency_ns = number("CACHALOT_SIM_LATENCY_NS", 3000);
    values.driver = (int)number("CACHALOT_SIM_DRIVER", 13000);
    values.exports = (int)number("CACHALOT_SIM_EXPORTS", 1);
    values.peers = (int)number("CACHALOT_SIM_PEERS", 1);
    values.manual_clock = clock && strcmp(clock, "manual") == 0;
    values.delay = getenv("CACHALOT_SIM_DELAY");
    values.shared = getenv("CACHALOT_SIM_SHARED");
    values.fail = getenv("CACHALOT_SIM_FAIL");
}

const struct sim_config *config(void)
{
    pthread_once(&once, read_environment);
    return &values;
}
