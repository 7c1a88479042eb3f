/* A bug, in a library of the tests only: whoever asks about a fence hears that it has passed.
 * Random work must find it. The linker (--wrap) puts this in the place of driver_ops. */
#define driver_ops __wrap_driver_ops
#define driver_memory second_driver_memory
#define driver_sync_memops second_driver_sync_memops
#define driver_fill second_driver_fill
#define driver_read second_driver_read
#define driver_enter second_driver_enter
#define driver_leave second_driver_leave
#define driver_is_lasting second_driver_is_lasting
#define driver_fence_destroy second_driver_fence_destroy
#include "interpose/context/device_ops.h"

#define DEVICE_NOT_READY 0
#include "interpose/context/device_ops.c"
