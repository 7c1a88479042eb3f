/*
 * The table of exported symbols, without the prototypes of cuda.h: here the leftovers of the
 * 32-bit era are defined, whose real arguments nobody should use.
 */
#include "symbols.h"

#define SIM_NOT_SUPPORTED 801

#define OLD(symbol, since)                                                                         \
    int symbol(void);                                                                              \
    int symbol(void)                                                                               \
    {                                                                                              \
        static volatile int distinct = __COUNTER__;                                                \
        return distinct >= 0 ? SIM_NOT_SUPPORTED : 0;                                              \
    }
#include "calls_old.def"
#undef OLD

#define FN(symbol, implementation, since, parameters, arguments) void symbol(void);
#define EARLY FN
#define TWIN(symbol, suffix, implementation, since, parameters, arguments)                         \
    void symbol(void);                                                                             \
    void symbol##suffix(void);
#include "calls_device.def"
#include "calls_memory.def"
#include "calls_stream.def"
#undef FN
#undef TWIN

/* Per-thread twins came with 7.0; what is newer has had its twin from the start. */
#define TWIN_SINCE(since) ((since) < 7000 ? 7000 : (since))
#define FN(symbol, implementation, since, parameters, arguments) {#symbol, since, symbol},
#define TWIN(symbol, suffix, implementation, since, parameters, arguments)                         \
    {#symbol, since, symbol}, {#symbol #suffix, TWIN_SINCE(since), symbol##suffix},
#define OLD(symbol, since) {#symbol, since, (void (*)(void))symbol},
const struct sim_symbol sim_symbols[] = {
#include "calls_device.def"
#include "calls_memory.def"
#include "calls_stream.def"
#include "calls_old.def"
};
