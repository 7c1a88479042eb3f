/* Call sites: which stack of the thread, and which Python frames, ask for memory. Only with
 * CACHALOT_SITES. */
#ifndef CACHALOT_INTERPOSE_CALL_SITES_STACK_H
#define CACHALOT_INTERPOSE_CALL_SITES_STACK_H

#include "interpose/process/process.h"

/* Loads what the first look needs. Before anything is served. */
void call_sites_start(void);

/* Notes the calling thread's call site for its next request. */
void call_sites_look(void);

/* The calling thread's call site for memory of `kind` (as in snapshot_block); 0: it is not looked
 * at, or there is no room. */
uint32_t call_sites_find(unsigned kind);

#endif
