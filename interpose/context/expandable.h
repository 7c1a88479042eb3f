/* Decides which kind of memory this process gets: mapped memory or ordinary segments. */
#ifndef CACHALOT_INTERPOSE_CONTEXT_EXPANDABLE_H
#define CACHALOT_INTERPOSE_CONTEXT_EXPANDABLE_H

#include "interpose/resolve/cuda_api.h"

struct allocator;

/* Before the first allocator, which is on this device: decides what the options leave open or ask
 * for in vain, and says so in the report. */
void expandable_decide(CUdevice device);

/* After an allocator was made: warns, and corrects the report, if it has no mapped memory though it
 * should. */
void expandable_check(CUdevice device, const struct allocator *allocator);

#endif
