/*
 * One list of exported driver functions (calls_*.def), used for declarations, exports and look-ups:
 *   FN(symbol, implementation, since, parameters, arguments)
 *   TWIN(symbol, suffix, ...)  has a per-thread default stream twin, symbol + suffix, as well
 *   EARLY(...)                 needs no cuInit and takes no lock
 * `since` is the driver version as cuGetProcAddress counts (11030); the public name is the symbol
 * without _vN, _ptds and _ptsz.
 */
#ifndef SIM_CALL_H
#define SIM_CALL_H

#define __CUDA_API_VERSION_INTERNAL
#include "symbols.h"

#include <cuda.h>

#define FN(symbol, implementation, since, parameters, arguments) CALL_##symbol,
#define TWIN(symbol, suffix, implementation, since, parameters, arguments)                         \
    CALL_##symbol, CALL_##symbol##suffix,
#define EARLY FN
#define OLD(symbol, since) CALL_##symbol,
enum sim_call {
#include "calls_device.def"
#include "calls_memory.def"
#include "calls_stream.def"
#include "calls_old.def"
    CALL_COUNT
};
#undef FN
#undef TWIN

#define FN(symbol, implementation, since, parameters, arguments) CUresult implementation parameters;
#define TWIN(symbol, suffix, implementation, since, parameters, arguments)                         \
    CUresult implementation parameters;
#include "calls_device.def"
#include "calls_memory.def"
#include "calls_stream.def"
#undef FN
#undef TWIN
#undef EARLY
#undef OLD

/* Counts, injects failures, refuses what the configured driver is too old for. */
CUresult call_begin_early(enum sim_call call);
/* The same, and cuInit must have been called; on success the lock is held until call_end. */
CUresult call_begin(enum sim_call call, int per_thread);
CUresult call_end(CUresult result);
void call_set_initialised(void);

#endif
