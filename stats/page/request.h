/* What a process is asked for by others, in the word `request` of its page. */
#ifndef CACHALOT_STATS_PAGE_REQUEST_H
#define CACHALOT_STATS_PAGE_REQUEST_H

enum page_request {
    REQUEST_NONE = 0,
    REQUEST_REPORT = 1,
    REQUEST_EMPTY_CACHE = 2,
    REQUEST_BLOCKS = 4,
    REQUEST_GIVE = 8, /* from another process: need.h */
    REQUEST_SLEEP = 16,
    REQUEST_WAKE = 32,
    REQUEST_PARTIAL = 64, /* with SLEEP: ordinary segments stay */
    REQUEST_HOLD = 128    /* with SLEEP: only WAKE wakes the process */
};

#endif
