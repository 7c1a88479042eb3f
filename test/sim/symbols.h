/*
 * The table of exported driver symbols, in the order of enum sim_call.
 */
#ifndef SIM_SYMBOLS_H
#define SIM_SYMBOLS_H

struct sim_symbol {
    const char *name;
    int since;
    void (*address)(void);
};

extern const struct sim_symbol sim_symbols[];

#endif
