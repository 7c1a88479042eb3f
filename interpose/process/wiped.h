/* Variables that a forked or cloned child finds zeroed: CUDA does not survive a fork, so the child
 * finds nothing begun, no lock held, and starts from nothing if it can.
 *
 * The kernel does it (MADV_WIPEONFORK), page by page and also in a child that runs no handlers. So an
 * owner keeps all such variables in one struct, which has its pages to itself, and lists it:
 *
 *     static struct WIPED captures { ... } captures;
 *     static const struct wiped wiped WIPED_ENTRY = {&captures, sizeof captures}; */
#ifndef CACHALOT_INTERPOSE_PROCESS_WIPED_H
#define CACHALOT_INTERPOSE_PROCESS_WIPED_H

#include <stddef.h>

/* The largest page of any kernel for this processor. */
#if defined(__x86_64__)
#define WIPED_BYTES 4096
#else
#define WIPED_BYTES 65536
#endif

#define WIPED __attribute__((aligned(WIPED_BYTES)))
#define WIPED_ENTRY __attribute__((used, section("wiped_list")))

struct wiped {
    void *start;
    size_t bytes;
};

/* From here on a child finds this entry's variables zeroed, or those of all entries. Where the
 * kernel cannot, a handler does it after a fork. As often as wanted. */
void wiped_from_now(const struct wiped *entry);
void wiped_all_from_now(void);

#endif
