/* The structs of an arena (arena.h). */
#ifndef CACHALOT_ALLOCATOR_POOL_ARENA_LAYOUT_H
#define CACHALOT_ALLOCATOR_POOL_ARENA_LAYOUT_H

#include "allocator/base/max_tree.h"
#include "allocator/base/policy.h"
#include "allocator/state/domain.h"

#define CHUNK_BYTES (2 * MIB) /* the driver's granule, which it has had on each device so far */

struct slot {
    struct block *largest; /* arena_fit.c: of the holes in the pool that begin here */
    struct block *hole;    /* the reusable or absent block whose first whole slot this is; or the
                            * ELSEWHERE block of the slot */
    uint64_t since;        /* the epoch in which its chunk last left it */
    uint32_t chunk;        /* number of the chunk mapped here, from 1; 0: none */
    uint32_t was;          /* while changing: the chunk that was mapped here */
    int changing;          /* a driver call changes it (or could not undo it): in no window */
    int allowing;          /* walks under way that give peers access: its mapping must stay */
    int unmapped, mapped;  /* results of a change; its thread writes them without the lock */
    int pinned;            /* the program has set SYNC_MEMOPS on what is mapped here */
};

/* AWAY: the chunk has its home in another slot. DIVIDED: another slot owns the chunk and has the
 * rest of its bytes. */
enum presence { NOT_PRESENT, AT_HOME, AWAY, DIVIDED };

struct chunk {
    uint64_t handle; /* in the first chunk only */
    uint32_t first;  /* of its handle: number of the first chunk, and how many chunks */
    uint8_t span;
    /* For window.c, in the handle's first chunk, for search `seen`. there: the handle is idle in
     * the window. wanted: how many parts of the window it would come back to. wanted_end: where the
     * last such part ends. unsafe_end: the end of the last one whose old mapping work may still
     * use. */
    uint8_t there;
    uint16_t wanted;
    uint32_t wanted_end, unsafe_end, seen;
    uint32_t owner;  /* slot, from 1; 0: none has it, it is spare */
    uint32_t second; /* slot, from 1, that has another part of it; 0: it is not divided */
    uint32_t home;   /* slot, from 1, to which it returns when idle, still mapped; 0: none yet */
    uint8_t booked,
        retired;         /* counts as reserved; was below a pinned slot: may only be given back */
    uint8_t stays;       /* while leaving: the driver refused to unmap it somewhere */
    enum stat_pool pool; /* the statistics pool that counts it: of its last owner */
    uint32_t leaving, lent; /* leaving: number of the batch with which it goes back, so no slot has
                             * it; lent: exports of the handle under way, in its first chunk */
};

#define NATIVE_SIZES 512

/* A size above 1 MiB that was asked for (packing.c). */
struct asked {
    uint64_t size;  /* bytes; 0: none */
    uint32_t first; /* the count of `requests` when it was first asked for */
    int live;       /* blocks handed out since then, less all blocks that came back */
};

/* The addresses of one pool's blocks: slots [first, end). */
struct arena_part {
    struct segment *segment;  /* NULL: there is no such part */
    uint32_t first, top, end; /* top: the end of the slots ever used */
    uint32_t chunks, handles; /* counted for this pool */
};

/* Memory that could be moved or given back. */
struct arena_free {
    uint32_t slots, spares; /* chunks: idle in a slot, or spare (in no slot) */
    uint32_t retired;       /* chunks that may only be given back */
    uint64_t least;         /* the fewest idle bytes since the last look of arena_unused */
};

/* For mapping/claim.c and window.c. */
struct arena_claims {
    uint32_t runs;          /* searches for a window so far */
    uint32_t span_most;     /* chunks of the largest handle that may be made */
    uint64_t room, missing; /* bytes that the last claim could make; bytes that it lacked */
    uint64_t unfit;         /* idle bytes in handles too large for the gaps of the last claim */
};

/* mapping/release.c: when no work may use the old mapping of a slot that was left. */
struct arena_left {
    uint64_t epoch, safe, marked; /* work is over in slots left in epochs up to `safe` */
    uint64_t walks;               /* walks that give peers access, begun so far */
    struct fence *mark;           /* after epoch `marked`; NULL: none is outstanding */
};

/* Block structs in reserve, joined by `link`. */
struct arena_kit {
    struct block *first;
    uint32_t count;
};

/* pool/packing.c: what requests of more than 1 MiB say about the program. */
struct arena_packing {
    uint64_t requests;                         /* so far */
    struct asked asked[NATIVE_SIZES];          /* by hash of the size */
    uint64_t sizes[POLICY_VARIED_SIZES], news; /* the last new sizes, in a ring; new sizes so far */
    uint64_t noted;        /* new sizes count from this one on (packing_noted) */
    int irregular, varied; /* above 0: large sizes hardly recur; blocks outlive their sizes */
};

struct arena {
    _Alignas(64) struct allocator *allocator; /* tables behind the struct begin with a cache line */
    struct arena_part part[STAT_POOLS]; /* the small blocks' part lies behind the large ones' */
    uint64_t base, reserved;            /* reserved: bytes of addresses; any number */
    uint8_t *idle;           /* by slot: its handle lies wholly in a reusable block there */
    uint8_t *joined;         /* by slot: its handle also covers the slot before */
    uint8_t *present, *cost; /* by slot: enum presence; the cost in the current search */
    struct slot *slot;
    struct max_tree fit;          /* by slot: the grains of `largest` */
    struct chunk *chunk;          /* by number, from 1 */
    uint32_t slots, made, unused; /* made: highest number ever used; unused: none below is free */
    uint32_t divided;             /* how many chunks are divided (mapping/divide.h) */
    struct arena_free free;
    struct arena_claims claim;
    struct arena_left left;
    struct arena_kit kit;
    struct arena_packing packing;
};

#endif
