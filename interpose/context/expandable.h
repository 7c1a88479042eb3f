/* Which kind of memory this process gets: mapped memory or ordinary segments. */
#ifndef CACHALOT_INTERPOSE_CONTEXT_EXPANDABLE_H
#define CACHALOT_INTERPOSE_CONTEXT_EXPANDABLE_H

#include "interpose/resolve/cuda_api.h"

struct allocator;

/* Before the first allocator is made, of this device: decides what was left
 * to us, or cannot be as asked, and says so in the report. */
void expandable_decide(CUdevice device);

/* After an allocator was made: has it mapped memory, where it should? Else the report says so. */
void expandable_check(CUdevice device, const struct allocator *allocator);

#endif
