/* The call site (stats/events/sites.h) from which the calling thread asks for memory. It is
 * thread-local: no lock. */
#ifndef CACHALOT_ALLOCATOR_BASE_ASKED_SITE_H
#define CACHALOT_ALLOCATOR_BASE_ASKED_SITE_H

#include <stdint.h>

#define ASKED_NEVER (INT64_MAX / 2)

/* left: bytes that the thread may request before a call site is looked at; 0 in a new thread. site:
 * mark of its next request (site_mark); 0: not looked at. */
struct asked_by {
    int64_t left;
    uint32_t site;
};
extern _Thread_local
    __attribute__((tls_model("initial-exec"), visibility("hidden"))) struct asked_by asked_by;

/* Takes a request of `bytes` bytes off. Returns 0 and takes nothing if its call site is to be
 * looked at. asked_return: the request was not served. */
static inline int asked_pass(uint64_t bytes)
{
    asked_by.left -= (int64_t)bytes;
    if (__builtin_expect(asked_by.left >= 0, 1))
        return 1;
    asked_by.left += (int64_t)bytes;
    return 0;
}

static inline void asked_return(uint64_t bytes)
{
    asked_by.left += (int64_t)bytes;
}

/* at: sets the mark of this thread's next requests. where: returns it. */
static inline void domain_asked_at(uint32_t site)
{
    asked_by.site = site;
}

static inline uint32_t domain_asked_where(void)
{
    return asked_by.site;
}

#endif
