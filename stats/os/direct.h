/* DIRECT: a function on the way of a hit that is only ever called by its name. It begins without the
 * instruction at which indirect calls land (endbr64). The compiler refuses to take its address. */
#ifndef CACHALOT_STATS_OS_DIRECT_H
#define CACHALOT_STATS_OS_DIRECT_H

#if defined(__CET__) && (__CET__ & 1)
#define DIRECT __attribute__((nocf_check))
#else
#define DIRECT
#endif

#endif
