/* Copies between the device and the host, by several threads of ours. */
#ifndef CACHALOT_INTERPOSE_SLEEP_MOVE_H
#define CACHALOT_INTERPOSE_SLEEP_MOVE_H

#include "interpose/sleep/live.h"

enum move_way { MOVE_OUT, MOVE_IN };

/* Copies all bytes of the runs to `store`, where they lie one after the other, or back. No work of the
 * program is under way. Returns when all copies are done: 0, or the driver's first error. */
int move_all(const struct live *live, char *store, enum move_way way);

#endif
