/* Results of the allocator's functions beside 0 (success) and the driver's error codes
 * (positive). */
#ifndef CACHALOT_ALLOCATOR_BASE_CONDITION_H
#define CACHALOT_ALLOCATOR_BASE_CONDITION_H

enum allocator_condition {
    ALLOCATOR_PASS = -11,    /* not served here: the caller asks the driver */
    ALLOCATOR_UNKNOWN = -12, /* the address is in no segment of the allocator */
    ALLOCATOR_INVALID = -13, /* it is in a segment, but is no block that the program holds */
    ALLOCATOR_MISS = -14,    /* allocator_hit only: no cached block fits */
};

#endif
