/* The Python frames of the calling thread, for call sites. */
#ifndef CACHALOT_INTERPOSE_CALL_SITES_PYTHON_STACK_H
#define CACHALOT_INTERPOSE_CALL_SITES_PYTHON_STACK_H

#include <stddef.h>
#include <stdint.h>

#define PYTHON_FRAMES 6

/* Innermost first. Valid until the thread returns to Python. */
struct python_frames {
    int count, odd; /* odd: something did not have the expected type */
    int safely;     /* read without faults */
    struct {
        uintptr_t code;
        int line;
    } frame[PYTHON_FRAMES];
};

/* Finds CPython in the process, once. */
void python_start(void);

/* No frames in a thread that Python does not know, or in an unknown version of Python. */
void python_frames(struct python_frames *frames);

/* Lines `file:line function`. */
void python_text(const struct python_frames *frames, char *text, size_t size);

#endif
