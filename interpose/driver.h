/* The allocator's device (allocator/device.h) by way of the real driver. `device` is a struct
 * context. */
#ifndef CACHALOT_INTERPOSE_DRIVER_H
#define CACHALOT_INTERPOSE_DRIVER_H

#include "allocator/device.h"

extern const struct device_ops driver_ops;

#endif
