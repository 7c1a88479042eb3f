/* Offsets of the structures in which CPython keeps a thread's frames, by version: facts of its
 * headers (64 bits, not free-threaded), which test/preload/python_layout.c compares with the
 * headers themselves.
 *
 * 3.13 and later publish most of them in the process. The published table differs from version to
 * version and leaves out `first`, so it would replace nothing. */
#ifndef CACHALOT_INTERPOSE_CALL_SITES_PYTHON_LAYOUT_H
#define CACHALOT_INTERPOSE_CALL_SITES_PYTHON_LAYOUT_H

#include <stdint.h>

enum {
    PYTHON_TYPE = 8,     /* of each object */
    PYTHON_SIZE = 16,    /* of code: instructions; of text: characters */
    PYTHON_STATE = 32,   /* of text: the bits that follow */
    PYTHON_KIND_BIT = 2, /* three bits: bytes of a character */
    PYTHON_COMPACT_BIT = 5,
    PYTHON_ASCII_BIT = 6,
    PYTHON_BY_GENERATOR = 1, /* owners of frames; */
    PYTHON_BY_C = 3,         /* this owner and all higher ones: not a frame of Python code */
};

struct python_layout {
    int minor;
    uint16_t frame, through;           /* of a thread: its frame, or what has it at `through` - 1 */
    uint16_t code, back, at, owner;    /* of a frame; 0: no owner, and `at` is a number */
    uint16_t file, name, first, begin; /* of code: first whole instruction, start of them all */
    uint16_t unit;                     /* bytes that the number `at` counts */
    uint16_t ascii, other;             /* bytes in front of text */
};

static const struct python_layout python_layouts[] = {
    {9, 24, 0, 32, 24, 104, 0, 104, 112, 0, 0, 1, 48, 72},
    {10, 24, 0, 32, 24, 96, 0, 104, 112, 0, 0, 2, 48, 72},
    {11, 56, 9, 32, 48, 56, 69, 112, 120, 168, 184, 0, 48, 72},
    {12, 56, 1, 0, 8, 56, 70, 112, 120, 176, 192, 0, 40, 56},
    {13, 72, 0, 0, 8, 56, 70, 112, 120, 184, 200, 0, 40, 56},
    {14, 72, 0, 0, 8, 56, 74, 112, 120, 192, 208, 0, 40, 56},
};

#endif
