/* Mapped memory (expandable_segments): large blocks lie in one range of addresses, far larger than
 * the memory, and physical memory is mapped below them where it is needed.
 *
 * The range is cut into slots, the memory into chunks of the same size; smaller ones, tails, lie at
 * the front of a slot, and the rest of its addresses stays absent. A chunk may be mapped in several
 * slots at once; its bytes belong to blocks in one of them, its owner: there they are
 * present, in the others absent. The head of arena.c says why that is enough. Guarded by the
 * domain's lock. */
#ifndef CACHALOT_ALLOCATOR_ARENA_H
#define CACHALOT_ALLOCATOR_ARENA_H

#include "allocator/domain.h"

struct slot {
    struct block *hole;  /* the reusable or absent block whose first whole slot this is */
    uint64_t since;      /* epoch when it was last left */
    uint64_t bytes;      /* of what is mapped here */
    uint32_t chunk;      /* mapped here, from 1; 0: none */
    uint32_t was;        /* while changing: mapped until now */
    int changing;        /* the driver is at it (or could not undo it): part of no window */
    int allowing;        /* walks under way that give peers access: its mapping stays meanwhile */
    int unmapped, stuck; /* what came of it; whose change it is writes them without the lock */
    int pinned;          /* the program has set something on what is mapped here */
};

struct chunk {
    uint64_t handle, bytes; /* fewer than a slot's: a tail */
    uint32_t owner;         /* slot, from 1; 0: none, it is spare */
    uint32_t home; /* slot, from 1, where it goes when it is idle, and stays mapped; 0: none yet */
    uint32_t seen; /* by search number */
    int booked;    /* counts as reserved */
    int retired;   /* was below a pinned slot: nobody's, until it is given back */
    uint32_t leaving, lent; /* batch with which it is about to be given back: nobody's; exports
                             * of its handle that are under way */
};

#define NATIVE_SIZES 256

struct arena {
    struct segment *segment;
    uint64_t chunk_bytes, base, reserved; /* reserved: bytes of addresses, a multiple of nothing */
    uint8_t *idle;                        /* by slot: it lies whole in a reusable block */
    struct slot *slot;
    struct chunk *chunk;               /* from 1 */
    uint32_t slots, top, chunks, made; /* top: slots ever used; made: chunk numbers ever used */
    uint32_t tails;                    /* of the chunks */
    uint32_t idle_slots, spares;       /* what could be moved, without tails */
    uint64_t idle_tails;               /* bytes of tails, idle or spare */
    uint64_t retired;                  /* bytes that can only be given back */
    uint64_t idle_least;               /* bytes idle since the last look, all the time */
    uint64_t booked;                   /* bytes of all chunks */
    uint64_t room, missing; /* for new ones, when a claim last looked; what that was too little */
    uint32_t searches, batches;
    uint64_t epoch, safe, marked; /* slots left up to `safe` are done with */
    uint64_t walks;               /* that gave peers access, begun so far */
    struct fence *mark;           /* of `marked`; NULL: none is on its way */
    struct block *kit;            /* block structs in reserve, joined by `link` */
    uint64_t sizes[NATIVE_SIZES]; /* of requests, by hash; native.c */
    uint64_t noted;               /* from this size on one that is new is a sign */
    int irregular;                /* above 0: sizes hardly come again */
};

/* The arena of a new allocator: create asks the driver, without the lock, and returns NULL if there
 * is none; begin puts it on the books, under it. Returns 0, or -1 without host memory. */
struct arena *arena_create(struct allocator *allocator);
int arena_begin(struct allocator *allocator);

/* Takes note that a block of an arena went into its pool, or left it. */
void arena_note(const struct block *block, int reusable);

/* Nothing is ever taken again from the slots of a live block: the program has set something there
 * that sticks. Retire: the block is reusable, and so are those around it: what lies below goes to
 * the driver when that is asked to take something, and then the addresses are as new. */
void arena_pin(struct block *block);
void arena_retire(struct block *block);

/* A block of `size` bytes, in no pool: from memory that is idle elsewhere; grow: and if that is too
 * little, from the driver. The lock is dropped meanwhile. */
int arena_claim(struct allocator *allocator, uint64_t size, struct block **block);
int arena_grow(struct allocator *allocator, uint64_t size, struct block **block);

/* Looks whether slots left some time ago are done with. */
void arena_poll(struct allocator *allocator);

/* Gives idle chunks back, at least `bytes` if there is so much; returns bytes. */
uint64_t arena_release(struct allocator *allocator, uint64_t bytes, uint64_t timeout_ns);

/* Has the driver allow all that is mapped once more. */
void arena_allow(struct allocator *allocator);

/* Gives everything back to the driver after the context has ended: nothing is under way. */
void arena_bury(struct allocator *allocator);

#endif
