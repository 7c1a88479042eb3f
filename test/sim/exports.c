/*
 * The exported driver functions, made from the list.
 */
#include "call.h"
#include "exported.h"

#define EARLY(symbol, implementation, since, parameters, arguments)                                \
    CUresult symbol parameters                                                                     \
    {                                                                                              \
        CUresult refused = call_begin_early(CALL_##symbol);                                        \
        return refused ? refused : implementation arguments;                                       \
    }
#define EXPORT(symbol, per_thread, implementation, parameters, arguments)                          \
    CUresult symbol parameters                                                                     \
    {                                                                                              \
        CUresult refused = call_begin(CALL_##symbol, per_thread);                                  \
        return refused ? refused : call_end(implementation arguments);                             \
    }
#define FN(symbol, implementation, since, parameters, arguments)                                   \
    EXPORT(symbol, 0, implementation, parameters, arguments)
#define TWIN(symbol, suffix, implementation, since, parameters, arguments)                         \
    EXPORT(symbol, 0, implementation, parameters, arguments)                                       \
    EXPORT(symbol##suffix, 1, implementation, parameters, arguments)
#include "calls_device.def"
#include "calls_memory.def"
#include "calls_stream.def"
#undef EARLY
#undef FN
#undef TWIN
