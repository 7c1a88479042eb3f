/* Compares the row of interpose/call_sites/python_layout.h with the headers of CPython that it is compiled
 * with; says the row that they make, and fails if it is another one. */
#define Py_BUILD_CORE
#include <Python.h>
#include <frameobject.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#if PY_MINOR_VERSION >= 14
#include <internal/pycore_interpframe.h>
#elif PY_MINOR_VERSION >= 11
#include <internal/pycore_frame.h>
#endif

#include "interpose/call_sites/python_layout.h"

#define AT(type, field) (uint16_t) offsetof(type, field)

static struct python_layout made(void)
{
    struct python_layout row = {.minor = PY_MINOR_VERSION};
#if PY_MINOR_VERSION <= 10
    row.frame = AT(PyThreadState, frame);
    row.code = AT(PyFrameObject, f_code);
    row.back = AT(PyFrameObject, f_back);
    row.at = AT(PyFrameObject, f_lasti);
    row.unit = PY_MINOR_VERSION == 9 ? 1 : 2;
#else
    row.back = AT(struct _PyInterpreterFrame, previous);
    row.owner = AT(struct _PyInterpreterFrame, owner);
    row.first = AT(PyCodeObject, _co_firsttraceable);
    row.begin = AT(PyCodeObject, co_code_adaptive);
#if PY_MINOR_VERSION <= 12
    row.frame = AT(PyThreadState, cframe);
    row.through = 1 + AT(_PyCFrame, current_frame);
    row.code = AT(struct _PyInterpreterFrame, f_code);
    row.at = AT(struct _PyInterpreterFrame, prev_instr);
#else
    row.frame = AT(PyThreadState, current_frame);
    row.code = AT(struct _PyInterpreterFrame, f_executable);
    row.at = AT(struct _PyInterpreterFrame, instr_ptr);
#endif
#endif
    row.file = AT(PyCodeObject, co_filename);
    row.name = AT(PyCodeObject, co_name);
    row.ascii = sizeof(PyASCIIObject);
    row.other = sizeof(PyCompactUnicodeObject);
    return row;
}

/* The lowest bit that is set in the state of `text`. */
static int bit_of(const PyASCIIObject *text)
{
    uint32_t bits;
    memcpy(&bits, (const char *)text + PYTHON_STATE, sizeof bits);
    return bits ? __builtin_ctz(bits) : -1;
}

static int same_objects(void)
{
    PyASCIIObject kind = {.state.kind = 1}, compact = {.state.compact = 1};
    PyASCIIObject ascii = {.state.ascii = 1};
    return bit_of(&kind) == PYTHON_KIND_BIT && bit_of(&compact) == PYTHON_COMPACT_BIT &&
           bit_of(&ascii) == PYTHON_ASCII_BIT && AT(PyObject, ob_type) == PYTHON_TYPE &&
           AT(PyVarObject, ob_size) == PYTHON_SIZE && AT(PyASCIIObject, length) == PYTHON_SIZE;
}

static int same_owners(void)
{
#if PY_MINOR_VERSION >= 14
    return FRAME_OWNED_BY_GENERATOR == PYTHON_BY_GENERATOR &&
           FRAME_OWNED_BY_INTERPRETER == PYTHON_BY_C;
#elif PY_MINOR_VERSION >= 12
    return FRAME_OWNED_BY_GENERATOR == PYTHON_BY_GENERATOR && FRAME_OWNED_BY_CSTACK == PYTHON_BY_C;
#elif PY_MINOR_VERSION == 11
    return FRAME_OWNED_BY_GENERATOR == PYTHON_BY_GENERATOR;
#else
    return 1;
#endif
}

int main(void)
{
    struct python_layout row = made(), known = {0};
    for (size_t i = 0; i < sizeof python_layouts / sizeof *python_layouts; i++)
        if (python_layouts[i].minor == row.minor)
            known = python_layouts[i];
    printf("{%d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d},\n", row.minor, row.frame,
           row.through, row.code, row.back, row.at, row.owner, row.file, row.name, row.first,
           row.begin, row.unit, row.ascii, row.other);
    return memcmp(&row, &known, sizeof row) || !same_objects() || !same_owners();
}
