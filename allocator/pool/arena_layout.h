/* What an arena is made of (arena.h). */
#ifndef CACHALOT_ALLOCATOR_POOL_ARENA_LAYOUT_H
#define CACHALOT_ALLOCATOR_POOL_ARENA_LAYOUT_H

#include "allocator/base/max_tree.h"
#include "allocator/base/policy.h"
#include "allocator/state/domain.h"

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

#define NATIVE_SIZES 512
#define NATIVE_SEEN 4096

/* A size above a MiB that was asked for (packing.c). */
struct asked {
    uint64_t size;  /* 0: none */
    uint32_t first; /* arena's `requests` when it was */
    int live;       /* blocks handed out since, less those that came back, also older ones */
};

/* Where the blocks of one pool lie: slots [first, end). */
struct arena_part {
    struct segment *segment;  /* NULL: there is no such part */
    uint32_t first, top, end; /* top: the end of what was ever used */
    uint32_t chunks, handles; /* booked as this pool's, and their bytes */
    uint64_t booked;
};

/* Bytes that could be moved or given back. */
struct arena_free {
    uint32_t slots, spares; /* chunks that are idle where they are, or nobody's; without tails */
    uint64_t tails;         /* bytes of tails, idle or nobody's */
    uint64_t retired;       /* bytes that can only be given back */
    uint64_t least;         /* bytes idle since the last look, all the time */
};

/* mapping/claim.c */
struct arena_claims {
    uint32_t runs;          /* of a search for a window, so far */
    uint32_t span_most;     /* chunks of the largest handle that is made */
    uint64_t room, missing; /* for new ones, when a claim last looked; what that was too little */
    uint64_t unfit; /* bytes that are idle in handles too large for the gaps of the last claim */
};

/* mapping/release.c: when a slot that was left is done with. */
struct arena_left {
    uint64_t epoch, safe, marked; /* slots left up to `safe` are done with */
    uint64_t walks;               /* that gave peers access, begun so far */
    struct fence *mark;           /* of `marked`; NULL: none is on its way */
};

/* Block structs in reserve, joined by `link`. */
struct arena_kit {
    struct block *first;
    uint32_t count;
};

/* pool/packing.c: what requests of more than a MiB say of the program. */
struct arena_packing {
    uint64_t requests, moves;                  /* so far; moves: of handles that there were */
    struct asked asked[NATIVE_SIZES];          /* by hash */
    uint64_t sizes[POLICY_VARIED_SIZES], news; /* the last that were new; how many so far */
    uint64_t seen[NATIVE_SEEN / 64];           /* bits, by hash: the sizes of `requests` */
    uint32_t distinct;                         /* how many those are */
    uint64_t noted;                            /* from this size on a new one is a sign */
    int irregular, varied; /* above 0: large sizes hardly come again; blocks outlive theirs */
};

struct arena {
    _Alignas(64) struct allocator *allocator; /* what lies behind it begins with a line */
    struct arena_part part[STAT_POOLS];       /* small blocks behind the large ones */
    uint64_t chunk_bytes, base, reserved; /* reserved: bytes of addresses, a multiple of nothing */
    unsigned shift;                       /* chunk_bytes is 2^shift; 0: no power of two */
    uint8_t *idle;   /* by slot: the handle mapped there lies whole in a reusable block */
    uint8_t *joined; /* by slot: what is mapped there is one with what is in the slot before */
    uint8_t *present, *cost; /* by slot: enum presence; in the search under way */
    struct slot *slot;
    struct max_tree fit;          /* by slot: grains of its `largest` */
    struct chunk *chunk;          /* from 1 */
    uint32_t slots, made, unused; /* made: chunk numbers ever used; unused: none below is free */
    uint32_t tails;               /* of the chunks */
    uint32_t divided;             /* of the chunks (mapping/divide.h) */
    struct arena_free free;
    struct arena_claims claim;
    struct arena_left left;
    struct arena_kit kit;
    struct arena_packing packing;
};

#endif
