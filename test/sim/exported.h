/* Prototypes of the exported functions: not every toolkit's headers declare all of them. After call.h. */
#ifndef SIM_EXPORTED_H
#define SIM_EXPORTED_H

#define FN(symbol, implementation, since, parameters, arguments) CUresult symbol parameters;
#define EARLY FN
#define TWIN(symbol, suffix, implementation, since, parameters, arguments)                         \
    CUresult symbol parameters;                                                                    \
    CUresult symbol##suffix parameters;
#include "calls_device.def"
#include "calls_memory.def"
#include "calls_stream.def"
#undef EARLY
#undef FN
#undef TWIN

#endif
