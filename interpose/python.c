/* Only documented functions of CPython (3.9 to 3.14), looked up, not linked.
 *
 * They may be called by a thread that holds the interpreter's lock: one whose own thread state is
 * the current one. That is looked at without the lock, and says no for all others. Nothing of the
 * program's is changed: a thread with an exception set is let be, what we take a reference to is
 * given back at once (its frame keeps it), and the collector rests meanwhile, since up to 3.11 a
 * frame object made for us could set it off, and with it code of the program's. */
#include "interpose/python.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static struct {
    int (*initialized)(void);
    void *(*current)(void), *(*own)(void), *(*occurred)(void);
    void (*clear)(void);
    void *(*frame)(void), *(*back)(void *), *(*code)(void *);
    int (*line)(void *);
    void *(*attribute)(void *, const char *);
    const char *(*utf8)(void *, ssize_t *);
    void (*release)(void *);
    int (*rest)(void), (*wake)(void); /* of the collector; from 3.10 on */
    int found;
} python;

static void find(void *pointer, const char *name, int *missing)
{
    void *function = dlsym(RTLD_DEFAULT, name);
    memcpy(pointer, &function, sizeof function);
    *missing += function == NULL;
}

void python_start(void)
{
    int missing = 0, older = 0;
    find(&python.initialized, "Py_IsInitialized", &missing);
    find(&python.current, "_PyThreadState_UncheckedGet", &older);
    if (older) /* its name from 3.13 on */
        find(&python.current, "PyThreadState_GetUnchecked", &missing);
    find(&python.own, "PyGILState_GetThisThreadState", &missing);
    find(&python.occurred, "PyErr_Occurred", &missing);
    find(&python.clear, "PyErr_Clear", &missing);
    find(&python.frame, "PyEval_GetFrame", &missing);
    find(&python.back, "PyFrame_GetBack", &missing);
    find(&python.code, "PyFrame_GetCode", &missing);
    find(&python.line, "PyFrame_GetLineNumber", &missing);
    find(&python.attribute, "PyObject_GetAttrString", &missing);
    find(&python.utf8, "PyUnicode_AsUTF8AndSize", &missing);
    find(&python.release, "Py_DecRef", &missing);
    find(&python.rest, "PyGC_Disable", &older);
    find(&python.wake, "PyGC_Enable", &older);
    python.found = missing == 0;
}

static int holds_lock(void)
{
    if (!python.found || !python.initialized())
        return 0;
    void *own = python.own();
    return own && own == python.current() && !python.occurred();
}

void python_frames(struct python_frames *frames)
{
    frames->count = 0;
    if (!holds_lock())
        return;
    int rested = python.rest && python.wake && python.rest();
    void *frame = python.frame(), *owned = NULL;
    while (frame && frames->count < PYTHON_FRAMES) {
        void *code = python.code(frame);
        frames->frame[frames->count].code = code;
        frames->frame[frames->count++].line = python.line(frame);
        void *back = python.back(frame);
        python.release(code);
        if (owned)
            python.release(owned);
        frame = owned = back;
    }
    if (owned)
        python.release(owned);
    if (python.occurred())
        python.clear();
    if (rested)
        python.wake();
}

/* An attribute that is text; returns how much of it was written. */
static size_t put_attribute(void *code, const char *name, char *to, size_t size)
{
    ssize_t length = 0;
    void *value = python.attribute(code, name);
    const char *text = value ? python.utf8(value, &length) : NULL;
    size_t most = text && length > 0 ? (size_t)length : 0, cut = 0;
    if (most >= size) { /* of a path the end says more */
        cut = most - size + 1;
        most = size - 1;
    }
    for (size_t i = 0; i < most; i++)
        to[i] = (unsigned char)text[cut + i] < 0x20 ? '?' : text[cut + i];
    to[most] = '\0';
    if (value)
        python.release(value);
    if (python.occurred())
        python.clear();
    return most;
}

void python_text(const struct python_frames *frames, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < frames->count; i++) {
        char file[96], function[64];
        put_attribute(frames->frame[i].code, "co_filename", file, sizeof file);
        put_attribute(frames->frame[i].code, "co_name", function, sizeof function);
        int n = snprintf(text + at, size - at, "%s:%d %s\n", file, frames->frame[i].line, function);
        if (n < 0 || (size_t)n >= size - at) {
            text[at] = '\0'; /* whole lines only */
            return;
        }
        at += (size_t)n;
    }
}
