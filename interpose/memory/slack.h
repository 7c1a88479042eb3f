/* The bytes between a request and the end of its block: has the program written them? (option slack) */
#ifndef CACHALOT_INTERPOSE_MEMORY_SLACK_H
#define CACHALOT_INTERPOSE_MEMORY_SLACK_H

#include <stdint.h>

#include "interpose/context/context.h"

/* Fills the slack of a block that was just handed out, and waits until the device has done it. */
void slack_fill(struct context *context, uint64_t address);

/* Looks at the slack of a block that is about to be freed, if it was filled. `wait`: first waits for
 * the work of the context, as the free does natively. */
void slack_check(uint64_t address, int wait);

/* Looks at the slack of all blocks that the program holds. */
void slack_check_all(void);

#endif
