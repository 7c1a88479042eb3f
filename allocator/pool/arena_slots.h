/* Slots and chunks (arena.h). */
#ifndef CACHALOT_ALLOCATOR_POOL_ARENA_SLOTS_H
#define CACHALOT_ALLOCATOR_POOL_ARENA_SLOTS_H

#include "allocator/state/block.h"

struct slot {
    struct block *largest; /* arena_fit.c: in the pool, of those that begin here */
    struct block *hole;   /* the reusable or absent block whose first whole slot this is; or what of
                            * it is elsewhere */
    uint64_t since;       /* epoch when it was last left */
    uint32_t chunk;       /* mapped here, from 1; 0: none */
    uint32_t was;         /* while changing: mapped until now */
    int changing;         /* the driver is at it (or could not undo it): part of no window */
    int allowing;         /* walks under way that give peers access: its mapping stays meanwhile */
    int unmapped, mapped; /* what came of it; whose change it is writes them without the lock */
    int pinned;           /* the program has set something on what is mapped here */
};

/* away: the chunk has its home elsewhere; divided: another slot owns it, and has the rest */
enum presence { NOT_PRESENT, AT_HOME, AWAY, DIVIDED };

struct chunk {
    uint64_t handle, bytes; /* handle: the first one's alone; fewer than a slot's: a tail */
    uint32_t first;         /* of those that are one handle: the number, and how many they are */
    uint8_t span;
    /* window.c, by the handle's first, in run `seen`: is it idle in the window; to how many parts of it would it
     * come back; where the last of these ends, and the last of those that work may still use */
    uint8_t there;
    uint16_t wanted;
    uint32_t wanted_end, unsafe_end, seen;
    uint32_t owner;  /* slot, from 1; 0: none, it is spare */
    uint32_t second; /* slot, from 1, that has a part of it; 0: it is not divided */
    uint32_t home; /* slot, from 1, where it goes when it is idle, and stays mapped; 0: none yet */
    uint8_t booked,
        retired;            /* counts as reserved; was below a pinned slot: only to be given back */
    uint8_t stays;          /* while leaving: the driver did not take a mapping of it down */
    enum stat_pool pool;    /* what it is booked as: where it last had an owner */
    uint32_t leaving, lent; /* batch with which it is about to be given back: nobody's; exports
                             * of the handle (the first's) that are under way */
};

#endif
