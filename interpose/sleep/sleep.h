/* Sleep: the live bytes of mapped memory go to the host, and the device memory below them goes back to
 * the driver. Wake: all of it comes back to the same addresses. README.md has the rules. */
#ifndef CACHALOT_INTERPOSE_SLEEP_SLEEP_H
#define CACHALOT_INTERPOSE_SLEEP_SLEEP_H

#include "interpose/sleep/cachalot.h"

/* What a call has done, in words: for the page's answer. */
struct sleep_answer {
    char text[256];
};

/* Puts the process to sleep, or changes nothing and says why. `flags`: CACHALOT_SLEEP_…. wake: waits
 * at most a few seconds for memory. Both return 0 or -1. */
int sleep_begin(unsigned flags, struct sleep_answer *answer);
int sleep_end(struct sleep_answer *answer);

/* Called when service begins. */
void sleep_start(void);

/* Is the process asleep, or does a thread move its memory? */
int sleep_is_on(void);

#endif
