/* Variables that a forked or cloned child finds zeroed. CUDA does not survive a fork: the child
 * finds nothing begun and no lock held, and may begin anew.
 *
 * The kernel wipes whole pages (MADV_WIPEONFORK), also in a child that runs no fork handlers. So an
 * owner keeps all such variables in one struct with pages of its own, and lists it:
 *
 *     static struct WIPED captures { ... } captures;
 *     static const struct wiped wiped WIPED_ENTRY = {&captures, sizeof captures}; */
#ifndef CACHALOT_INTERPOSE_PROCESS_WIPED_H
#define CACHALOT_INTERPOSE_PROCESS_WIPED_H

#include <stddef.h>

/* The largest page size of any kernel for this processor. */
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

/* From this call on, a child finds the variables of this entry, or of all entries, zeroed.
 * Idempotent. Where the kernel refuses, a fork handler clears them. */
void wiped_from_now(const struct wiped *entry);
void wiped_all_from_now(void);

#endif
