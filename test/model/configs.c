#include "configs.h"

#include <stdio.h>
#include <string.h>

/* In the order: threads, streams, blocks, most unfinished work, what programs may do. */
#define SIZE(t, s, b, w, p)                                                                        \
    .threads = (t), .streams = (s), .blocks = (b), .works = (w), .programs = (p)

static const struct config configs[] = {
    {.name = "core", SIZE(2, 2, 1, 3, 0)},
    {.name = "two-blocks", SIZE(2, 2, 2, 2, 0)},
    {.name = "three-streams", SIZE(2, 3, 1, 2, 0)},
    {.name = "three-threads", SIZE(3, 2, 1, 2, 0)},
    {.name = "legacy", SIZE(2, 3, 1, 2, 0), .legacy = 1},
    {.name = "captures", SIZE(2, 2, 1, 2, CAPTURES)},
    {.name = "destroys", SIZE(2, 2, 1, 3, DESTROYS)},
    {.name = "thread-ends", SIZE(2, 2, 1, 3, THREAD_ENDS), .legacy = 1},
    {.name = "programmatic", SIZE(2, 2, 1, 2, PROGRAMMATICS)},
    {.name = "async-frees", SIZE(2, 2, 1, 3, ASYNC_FREES)},
    {.name = "gives", SIZE(2, 2, 1, 2, EXPORTS | UNMAPPING)},
    /* Stream and block of context 0 and of context 1; both streams of 0, a block of each. */
    {.name = "contexts", SIZE(2, 2, 2, 2, 0), .stream_context = {0, 1}, .block_context = {0, 1}},
    {.name = "other-block", SIZE(2, 2, 2, 2, 0), .block_context = {0, 1}},
    {.name = "context-ends",
     SIZE(2, 2, 2, 2, CONTEXT_ENDS),
     .stream_context = {0, 1},
     .block_context = {0, 1}},
    {.name = "caches", SIZE(2, 2, 2, 2, CACHES)},
    {.name = "caches-contexts",
     SIZE(2, 2, 2, 2, CACHES),
     .stream_context = {0, 1},
     .block_context = {0, 1}},

    /* Does not hold, and cannot: DESIGN.md, "What cannot be had". */
    {.name = "strict", SIZE(2, 2, 1, 3, 0), .strict = 1},

    /* By hand. */
    {.name = "core-large", SIZE(2, 2, 1, 4, 0)},
    {.name = "two-blocks-large", SIZE(2, 2, 2, 3, 0)},
    {.name = "three-streams-large", SIZE(2, 3, 1, 3, 0)},
    {.name = "three-threads-two-blocks", SIZE(3, 2, 2, 2, 0), .touch_only = 1},
    {.name = "captures-large", SIZE(2, 2, 2, 2, CAPTURES)},
    {.name = "captures-three-threads", SIZE(3, 2, 1, 2, CAPTURES)},
    {.name = "destroys-large", SIZE(2, 3, 1, 2, DESTROYS)},
    {.name = "programmatic-large", SIZE(2, 2, 1, 3, PROGRAMMATICS)},
    {.name = "gives-large", SIZE(2, 2, 2, 2, EXPORTS | UNMAPPING)},
    {.name = "contexts-large",
     SIZE(2, 3, 2, 2, 0),
     .stream_context = {0, 0, 1},
     .block_context = {0, 1}},
    {.name = "all",
     SIZE(2, 2, 2, 2, CAPTURES | DESTROYS | EXPORTS | UNMAPPING | ASYNC_FREES | PROGRAMMATICS)},
};
enum { CONFIGS = sizeof(configs) / sizeof(*configs) };

const struct config *config_named(const char *name)
{
    for (int i = 0; i < CONFIGS; i++)
        if (!strcmp(configs[i].name, name))
            return &configs[i];
    return NULL;
}

void configs_print(void)
{
    for (int i = 0; i < CONFIGS; i++)
        printf("%-26s %d threads, %d streams, %d blocks, %d pieces of work\n", configs[i].name,
               configs[i].threads, configs[i].streams, configs[i].blocks, configs[i].works);
}
