/* Call sites: which stack of the thread, and which Python frames, ask for memory. Not with
 * CACHALOT_SITES=0. */
#ifndef CACHALOT_INTERPOSE_CALL_SITES_STACK_H
#define CACHALOT_INTERPOSE_CALL_SITES_STACK_H

#include "interpose/process/process.h"

/* Loads what the first look needs. Before anything is served. */
void call_sites_start(void);

/* Notes the calling thread's call site for its next request of `bytes` bytes on `device`, if it is
 * to be looked at. Returns 1 if so; after the request comes domain_asked_at(0). */
int call_sites_look(unsigned device, uint64_t bytes);

/* The mark (stats/events/sites.h) of the calling thread's call site for memory of `kind` (as in
 * snapshot_block) on `device`; 0: it is not looked at, or there is no room. now: whether or not the
 * request is to be looked at, which is not counted; returns the place. */
uint32_t call_sites_find(unsigned kind, unsigned device, uint64_t bytes);
uint32_t call_sites_now(unsigned kind, unsigned device);

/* Memory on `device` with that mark, which is no block of an allocator, was handed out (live: 1) or
 * freed (-1). */
void call_sites_count(uint32_t mark, unsigned device, uint64_t bytes, int live);

#endif
