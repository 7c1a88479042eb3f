/*
 * What the starts of cudart 12 and 13 have in common: one dlsym of cuGetProcAddress_v2, everything
 * else through the cuGetProcAddress that cuGetProcAddress v12000 gave; symbolStatus always NULL.
 */
#ifndef SIM_START_13_H
#define SIM_START_13_H

#include "runtime.h"

/* Fills the tables with functions of `newest` and older. Returns the driver's error. */
CUresult start_13(struct runtime_start *start, void *library, int newest);

#endif
