/* What an arena is made of (arena.h). */
#ifndef CACHALOT_ALLOCATOR_ARENA_LAYOUT_H
#define CACHALOT_ALLOCATOR_ARENA_LAYOUT_H

#include "allocator/domain.h"

struct slot {
    struct block *hole;   /* the reusable or absent block whose first whole slot this is */
    uint64_t since;       /* epoch when it was last left */
    uint32_t chunk;       /* mapped here, from 1; 0: none */
    uint32_t was;         /* while changing: mapped until now */
    int changing;         /* the driver is at it (or could not undo it): part of no window */
    int allowing;         /* walks under way that give peers access: its mapping stays meanwhile */
    int unmapped, mapped; /* what came of it; whose change it is writes them without the lock */
    int pinned;           /* the program has set something on what is mapped here */
};

enum presence { NOT_PRESENT, AT_HOME, AWAY }; /* away: the chunk has its home elsewhere */

struct chunk {
    uint64_t handle, bytes; /* handle: the first one's alone; fewer than a slot's: a tail */
    uint32_t first, span;   /* of those that are one handle: the number, and how many they are */
    uint32_t owner;         /* slot, from 1; 0: none, it is spare */
    uint32_t home; /* slot, from 1, where it goes when it is idle, and stays mapped; 0: none yet */
    uint32_t seen; /* by search number */
    int booked, retired;    /* counts as reserved; was below a pinned slot: only to be given back */
    int stays;              /* while leaving: the driver did not take a mapping of it down */
    enum stat_pool pool;    /* what it is booked as: where it last had an owner */
    uint32_t leaving, lent; /* batch with which it is about to be given back: nobody's; exports
                             * of the handle (the first's) that are under way */
};

#define NATIVE_SIZES 256

/* Where the blocks of one pool lie: slots [first, end). */
struct arena_part {
    struct segment *segment;  /* NULL: there is no such part */
    uint32_t first, top, end; /* top: the end of what was ever used */
    uint32_t chunks, handles; /* booked as this pool's, and their bytes */
    uint64_t booked;
};

struct arena {
    struct allocator *allocator;
    struct arena_part part[STAT_POOLS];   /* small blocks behind the large ones */
    uint64_t chunk_bytes, base, reserved; /* reserved: bytes of addresses, a multiple of nothing */
    unsigned shift;                       /* chunk_bytes is 2^shift; 0: no power of two */
    uint8_t *idle;   /* by slot: the handle mapped there lies whole in a reusable block */
    uint8_t *joined; /* by slot: what is mapped there is one with what is in the slot before */
    uint8_t *present, *cost; /* by slot: enum presence; in the search under way */
    struct slot *slot;
    struct chunk *chunk;            /* from 1 */
    uint32_t slots, made, unused;   /* made: chunk numbers ever used; unused: none below is free */
    uint32_t tails, searches, kits; /* of the chunks; so far; below, kit */
    uint32_t idle_slots, spares;    /* what could be moved, without tails */
    uint64_t idle_tails;            /* bytes of tails, idle or spare */
    uint64_t retired;               /* bytes that can only be given back */
    uint64_t idle_least;            /* bytes idle since the last look, all the time */
    uint32_t span_most;             /* chunks of the largest handle that is made */
    uint64_t room, missing; /* for new ones, when a claim last looked; what that was too little */
    uint64_t unfit; /* bytes that are idle in handles too large for the gaps of the last claim */
    uint64_t epoch, safe, marked; /* slots left up to `safe` are done with */
    uint64_t walks;               /* that gave peers access, begun so far */
    struct fence *mark;           /* of `marked`; NULL: none is on its way */
    struct block *kit;            /* block structs in reserve, joined by `link`: `kits` of them */
    uint64_t sizes[NATIVE_SIZES]; /* of requests, by hash; native.c */
    uint64_t noted;               /* from this size on one that is new is a sign */
    int irregular, varied;        /* above 0: large sizes, or all, hardly come again */
};

#endif
