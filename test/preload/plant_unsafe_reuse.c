/* A bug, in a library of the tests only: whoever asks about a fence hears that it has passed.
 * Random work must find it. The linker (--wrap) puts this in the place of driver_ops. */
#define driver_ops __wrap_driver_ops
#define driver_memory second_driver_memory
#define driver_sync_memops second_driver_sync_memops
#define driver_fill second_driver_fill
#define driver_read second_driver_read
#include "interpose/context/device_ops.h"

#define DEVICE_NOT_READY 0
#include "interpose/context/device_ops.c"
