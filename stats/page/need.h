/* Memory on demand: what this user's processes ask of each other, by their pages. A process that is
 * out of memory notes its need on its own page and asks the others. Each of them gives idle memory
 * back and says so on its own page. What another page says is a hint: it moves no more than idle
 * memory, and nobody waits for it without a limit. Pages are read by pread, and changed by the
 * kernel alone: they may be cut off at any moment. */
#ifndef CACHALOT_STATS_PAGE_NEED_H
#define CACHALOT_STATS_PAGE_NEED_H

#include "stats/page/page.h"

#define NEED_NEIGHBOURS 64 /* pages that one call asks */

/* The processes that were asked. */
struct need_asked {
    unsigned count;
    unsigned refused; /* files that are another user's or damaged; one more: there are too many */
    struct need_neighbour {
        int fd;
        uint32_t before; /* its count `gave` when it was asked */
        uint64_t pid, start_ticks;
        int is_silent;            /* it did not answer when it was asked last */
        uint64_t given_at, given; /* where its count of bytes given lies; what that was */
    } of[NEED_NEIGHBOURS];
};

/* Notes on the own page that `bytes` bytes are needed on the device of row `row`; 0: none are. group:
 * only the memory of its processes helps; 0: that of all. */
void need_note(struct page *own, unsigned row, uint64_t bytes, uint64_t group);

/* Asks the live pages beside the own one that use the same device, and are of the group whose memory
 * is needed. `asked` has the processes asked
 * last, or count 0. Opens files; need_close closes them. */
void need_ask(const struct page *own, unsigned row, struct need_asked *asked);
void need_close(struct need_asked *asked);

/* Notes what they have given since, and the time that it took. Before need_close. */
void need_tell(struct page *own, unsigned row, uint64_t bytes, const struct need_asked *asked,
               uint64_t waited_ns);

/* Notes in the event what other processes hold of the device of row `row`. Opens files. */
void need_holders(const struct page *own, unsigned row, struct page_oom *event);

/* How many of them have answered. The others: are giving at this moment; were silent at the last
 * question too; the rest. */
struct need_answers {
    unsigned answered, giving, silent, due;
};
struct need_answers need_answers(const struct need_asked *asked);

/* Adds what others need of this process to bytes[row] of each device of the own page, of which there are `rows`.
 * Opens files. */
void need_of_others(const struct page *own, uint64_t *bytes, unsigned rows);

/* Says that the process begins or ends giving. */
void need_gives(struct page *own);

#endif
