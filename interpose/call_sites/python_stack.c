/* Reads the frames from the interpreter's own structures, with or without its lock: PyTorch, CuPy
 * and ctypes release the lock before they ask for memory, and waiting for it could take for ever.
 *
 * While a thread is in C its frames do not change, and they keep their code objects, with names and
 * line tables, alive. The reader takes no reference and makes no object. So it needs no lock, but
 * it must know the layout: by version (python_layout.h). Until one walk has found code and text
 * where they should be, walks use reads that cannot fault. Only the end of the interpreter, which
 * does not wait for daemon threads, takes frames away from a thread in C. The main thread ends the
 * interpreter; all other threads always read without faults. */
#include "interpose/call_sites/python_stack.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "interpose/call_sites/python_layout.h"
#include "interpose/resolve/elf_tables.h"
#include "interpose/resolve/real_driver.h"

#define STEPS 32 /* frames that a walk visits, those of C included */
#define FRAME_BYTES 128
#define CODE_BYTES 256
#define TEXT_BYTES 96

static struct {
    const struct python_layout *layout; /* NULL: this version is not known */
    int (*initialized)(void);
    void *(*own)(void);
    int (*line)(void *, int);
    uintptr_t code_type, text_type;
    size_t frame_bytes, code_bytes;
    atomic_int proven;
} python;

static int find(void *pointer, const char *name)
{
    void *found = real_dlsym_call(RTLD_DEFAULT, name);
    memcpy(pointer, &found, sizeof found);
    return found != NULL;
}

/* NULL for alphas and betas, whose layout was not final, and for free-threaded builds. */
static const struct python_layout *layout_of(const char *version)
{
    char *after;
    if (strncmp(version, "3.", 2) != 0 || strstr(version, "free-threading"))
        return NULL;
    long minor = strtol(version + 2, &after, 10);
    after += *after == '.' ? 1 + strspn(after + 1, "0123456789") : 0;
    if (*after == 'a' || *after == 'b')
        return NULL;
    for (size_t i = 0; i < sizeof python_layouts / sizeof *python_layouts; i++)
        if (python_layouts[i].minor == minor)
            return &python_layouts[i];
    return NULL;
}

static int has_python(struct dl_phdr_info *info, size_t size, void *unused)
{
    const struct object object = elf_object(info);
    (void)size, (void)unused;
    if (!object.dynamic)
        return 0;
    const struct tables tables = elf_tables(&object);
    return elf_find(&object, &tables, "Py_GetVersion") != NULL;
}

/* A dlsym that finds nothing leaves an error for the program's next dlerror. */
void python_start(void)
{
    const char *(*version)(void);
    if (!dl_iterate_phdr(has_python, NULL))
        return;
    if (!find(&version, "Py_GetVersion") || !find(&python.initialized, "Py_IsInitialized") ||
        !find(&python.own, "PyGILState_GetThisThreadState") ||
        !find(&python.line, "PyCode_Addr2Line") || !find(&python.code_type, "PyCode_Type") ||
        !find(&python.text_type, "PyUnicode_Type"))
        return;
    const struct python_layout *layout = layout_of(version());
    if (!layout)
        return;
    python.frame_bytes = layout->owner ? layout->owner + 1u : layout->at + sizeof(int);
    python.code_bytes = layout->first ? layout->first + sizeof(int) : PYTHON_SIZE + sizeof(size_t);
    python.layout = layout;
}

/* Remembered: after a fork the calling thread may become the main one. */
static int on_main_thread(void)
{
    static _Thread_local signed char is_main;
    if (is_main == 0)
        is_main = syscall(SYS_gettid) == getpid() ? 1 : -1;
    return is_main > 0;
}

static int copy(const struct python_frames *frames, void *to, uintptr_t from, size_t size)
{
    if (!frames->safely) {
        memcpy(to, (const void *)from, size);
        return 1;
    }
    struct iovec here = {to, size}, there = {(void *)from, size};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)size;
}

static uintptr_t word(const unsigned char *at)
{
    uintptr_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static int number(const unsigned char *at)
{
    int value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uintptr_t pointer_at(const struct python_frames *frames, uintptr_t address)
{
    uintptr_t value;
    return address && copy(frames, &value, address, sizeof value) ? value : 0;
}

/* The offset of the current instruction in the code; -1: the frame is not complete yet; -2:
 * impossible. */
static intptr_t instruction(const unsigned char *frame, uintptr_t code, const unsigned char *head)
{
    const struct python_layout *layout = python.layout;
    if (!layout->owner)
        return number(frame + layout->at) < 0 ? -1 : number(frame + layout->at) * layout->unit;
    intptr_t at = (intptr_t)(word(frame + layout->at) - code - layout->begin);
    if (frame[layout->owner] != PYTHON_BY_GENERATOR && at < 2 * number(head + layout->first))
        return -1;
    return at < 2 * (intptr_t)word(head + PYTHON_SIZE) ? (at < 0 ? 0 : at) : -2;
}

static uintptr_t end_at_odd(struct python_frames *frames)
{
    frames->odd = 1;
    return 0;
}

/* Notes a frame. Returns its caller; 0: there is none, or something was odd. */
static uintptr_t step(struct python_frames *frames, uintptr_t address)
{
    const struct python_layout *layout = python.layout;
    unsigned char frame[FRAME_BYTES], head[CODE_BYTES];
    if (!copy(frames, frame, address, python.frame_bytes))
        return end_at_odd(frames);
    uintptr_t back = word(frame + layout->back);
    if (layout->owner && frame[layout->owner] >= PYTHON_BY_C)
        return back;
    uintptr_t code = word(frame + layout->code) & ~(uintptr_t)7; /* from 3.14 on: a tag */
    if (!code || !copy(frames, head, code, python.code_bytes) ||
        word(head + PYTHON_TYPE) != python.code_type)
        return end_at_odd(frames);
    intptr_t at = instruction(frame, code, head);
    if (at < 0)
        return at == -1 ? back : end_at_odd(frames);
    frames->frame[frames->count].code = code;
    frames->frame[frames->count++].line = python.line((void *)code, (int)at);
    return back;
}

/* Writes a character as UTF-8. Control characters and surrogates become a question mark: they could
 * hide or fake text. Returns the number of bytes. */
static size_t put_character(uint32_t c, char *to)
{
    if (c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff)
        c = '?';
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    size_t more = (c >= 0x80) + (c >= 0x800) + (c >= 0x10000);
    to[0] = (char)(lead[more] | c >> 6 * more);
    for (size_t i = 1; i <= more; i++)
        to[i] = (char)(0x80 | (c >> 6 * (more - i) & 63));
    return more + 1;
}

/* Copies the end of the text at `address`: of a path the end says more. Returns the number of
 * bytes. */
static size_t put_text(const struct python_frames *frames, uintptr_t address, char to[TEXT_BYTES])
{
    unsigned char head[PYTHON_STATE + sizeof(int)], tail[4 * TEXT_BYTES];
    char one[4];
    to[0] = '\0';
    if (!address || !copy(frames, head, address, sizeof head) ||
        word(head + PYTHON_TYPE) != python.text_type)
        return 0;
    unsigned state = (unsigned)number(head + PYTHON_STATE);
    size_t wide = state >> PYTHON_KIND_BIT & 7, length = word(head + PYTHON_SIZE);
    if (!(state >> PYTHON_COMPACT_BIT & 1) || (wide != 1 && wide != 2 && wide != 4))
        return 0;
    size_t count = length < TEXT_BYTES - 1 ? length : TEXT_BYTES - 1, left = TEXT_BYTES - 1;
    address += state >> PYTHON_ASCII_BIT & 1 ? python.layout->ascii : python.layout->other;
    if (!copy(frames, tail, address + (length - count) * wide, count * wide))
        return 0;
    while (count-- > 0) { /* backwards, into the end of the buffer */
        uint32_t c = 0;
        memcpy(&c, tail + count * wide, wide);
        size_t bytes = put_character(c, one);
        if (bytes > left)
            break;
        memcpy(to + (left -= bytes), one, bytes);
    }
    size_t written = TEXT_BYTES - 1 - left;
    memmove(to, to + left, written);
    to[written] = '\0';
    return written;
}

static size_t put_name(const struct python_frames *frames, int i, uint16_t which, char *to)
{
    return put_text(frames, pointer_at(frames, frames->frame[i].code + which), to);
}

/* Two frames or more, all with names: so the offset of `back` is right too. */
static int proves(const struct python_frames *frames)
{
    char text[TEXT_BYTES];
    for (int i = 0; i < frames->count; i++)
        if (!put_name(frames, i, python.layout->file, text) ||
            !put_name(frames, i, python.layout->name, text))
            return 0;
    return frames->count > 1 && !frames->odd;
}

void python_frames(struct python_frames *frames)
{
    const struct python_layout *layout = python.layout;
    frames->count = frames->odd = 0;
    if (!layout || !python.initialized())
        return;
    int proven = atomic_load_explicit(&python.proven, memory_order_relaxed);
    frames->safely = !proven || !on_main_thread();
    uintptr_t thread = (uintptr_t)python.own();
    uintptr_t frame = thread ? pointer_at(frames, thread + layout->frame) : 0;
    if (frame && layout->through)
        frame = pointer_at(frames, frame + layout->through - 1);
    for (int i = 0; frame && i < STEPS && frames->count < PYTHON_FRAMES; i++)
        frame = step(frames, frame);
    if (!proven && proves(frames))
        atomic_store_explicit(&python.proven, 1, memory_order_relaxed);
}

void python_text(const struct python_frames *frames, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < frames->count; i++) {
        char file[TEXT_BYTES], function[TEXT_BYTES];
        put_name(frames, i, python.layout->file, file);
        put_name(frames, i, python.layout->name, function);
        int n = snprintf(text + at, size - at, "%s:%d %s\n", file, frames->frame[i].line, function);
        if (n < 0 || (size_t)n >= size - at) {
            text[at] = '\0'; /* only whole lines */
            return;
        }
        at += (size_t)n;
    }
}
