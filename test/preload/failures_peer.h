/* What failures.c has from other processes and devices. */
#ifndef PRELOAD_FAILURES_PEER_H
#define PRELOAD_FAILURES_PEER_H

#include "submission_world.h"

#define PEER_SECONDS 30

/* Makes the other process, before CUDA begins. */
void peer_begin(void);

/* What the children so far left: thousands of them would fill /dev/shm. Of one that still runs
 * nobody reads the page. */
void remove_pages(void);

/* Each opens what the other exports; and memory that keeps a setting. */
void share_with_peer(void);

/* Access of another device to this one's memory, where there is one. */
void share_with_device(void);

#endif
