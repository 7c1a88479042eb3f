/* Units of bytes. */
#ifndef CACHALOT_ALLOCATOR_BASE_UNITS_H
#define CACHALOT_ALLOCATOR_BASE_UNITS_H

#include <stdint.h>

#define MIB ((uint64_t)1 << 20)

#endif
