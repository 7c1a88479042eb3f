/* CACHALOT_CONF: any text is understood or complained of, and what came of it is a setting. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "allocator/base/options.h"

static void complain(void *count, const char *message)
{
    HOLDS(strlen(message) > 0 && strlen(message) < 512);
    ++*(int *)count;
}

static void check(const struct options *options)
{
    char value[256];
    for (unsigned i = 0; options_name(i); i++) {
        options_value(options, i, value, sizeof value);
        HOLDS(value[0] && strlen(value) < sizeof value);
    }
    for (uint64_t bytes = 1; bytes && bytes < UINT64_MAX / 8; bytes *= 7) {
        uint64_t size = options_round(options, bytes);
        HOLDS(size >= bytes && size % 512 == 0 && options_round(options, size) == size);
    }
    HOLDS(options_limit(options, 1 << 30) > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct options options;
    int complaints = 0;
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    options_default(&options);
    int count = options_parse(&options, text, OPTIONS_ALL, complain, &complaints);
    HOLDS(count == complaints);
    check(&options);
    options_default(&options);
    options_parse(&options, text, options_pytorch_keys(), complain, &complaints);
    HOLDS(!(options.given & ~options_pytorch_keys()));
    free(text);
    return 0;
}
