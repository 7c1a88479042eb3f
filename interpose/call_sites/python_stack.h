/* The lines of Python that a thread is in, for call sites. */
#ifndef CACHALOT_INTERPOSE_CALL_SITES_PYTHON_STACK_H
#define CACHALOT_INTERPOSE_CALL_SITES_PYTHON_STACK_H

#include <stddef.h>
#include <stdint.h>

#define PYTHON_FRAMES 6

/* Innermost first; good as long as the thread does not return to Python. */
struct python_frames {
    int count, odd; /* odd: something was not what it should be */
    int safely;     /* by reads that cannot fault */
    struct {
        uintptr_t code;
        int line;
    } frame[PYTHON_FRAMES];
};

/* Finds CPython in the process, once. */
void python_start(void);

/* None in a thread that Python does not know, nor of a version that is not known here. */
void python_frames(struct python_frames *frames);

/* Lines `file:line function`. */
void python_text(const struct python_frames *frames, char *text, size_t size);

#endif
