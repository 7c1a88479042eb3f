/* What the allocator's functions return beside 0 and the driver's error codes (positive). */
#ifndef CACHALOT_ALLOCATOR_BASE_CONDITION_H
#define CACHALOT_ALLOCATOR_BASE_CONDITION_H

enum allocator_condition {
    ALLOCATOR_PASS = -11,    /* not for us: ask the driver natively */
    ALLOCATOR_UNKNOWN = -12, /* no memory of ours */
    ALLOCATOR_INVALID = -13, /* inside a segment of ours, but no block that the program holds */
    ALLOCATOR_MISS = -14,    /* allocator_hit only: not in the cache */
};

#endif
