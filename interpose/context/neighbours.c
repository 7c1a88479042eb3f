#include "interpose/context/neighbours.h"

#include "allocator/base/policy.h"
#include "interpose/context/capture.h"
#include "interpose/context/context.h"
#include "interpose/process/private_files.h"
#include "interpose/process/process.h"
#include "stats/os/clock.h"
#include "stats/os/pause.h"
#include "stats/page/need.h"

struct question {
    unsigned row;
    uint64_t bytes;
    int answered;
};

/* How long to wait for a process: one that gives, one that is due to, and one that was silent when it
 * was asked last. A giver waits half of the second for work on its memory. */
static uint64_t patience_ns(const struct need_answers *answers)
{
    uint64_t due = 2 * policy.moment_wait_ns;
    return answers->giving   ? policy.idle_wait_ns
           : answers->due    ? due
           : answers->silent ? due / 10
                             : 0;
}

static void say_refused(unsigned count)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (count && !atomic_flag_test_and_set(&said))
        process_warn(
            "%u pages beside this process's own are another user's, damaged or too many: no "
            "memory is asked of them",
            count);
}

/* One thread at a time. */
static void ask(void *context)
{
    static struct need_asked asked;
    struct question *question = context;
    struct need_answers answers;
    uint64_t begin = clock_ns(CLOCK_MONOTONIC);
    need_ask(process.page, question->row, &asked);
    say_refused(asked.refused);
    while (answers = need_answers(&asked),
           clock_ns(CLOCK_MONOTONIC) - begin < patience_ns(&answers))
        pause_ns(500000);
    question->answered = (int)answers.answered;
    need_tell(process.page, question->row, question->bytes, &asked,
              clock_ns(CLOCK_MONOTONIC) - begin);
    need_close(&asked);
}

int neighbours_ask(const struct context *context, uint64_t bytes, int of_group)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    struct question question = {.row = (unsigned)context->device, .bytes = bytes};
    if (!process.page->path[0])
        return 0;
    pthread_mutex_lock(&one);
    need_note(process.page, question.row, bytes, of_group ? process.page->group : 0);
    files_run(ask, &question);
    need_note(process.page, question.row, 0, 0);
    pthread_mutex_unlock(&one);
    return question.answered;
}

struct needs {
    uint64_t bytes[PEER_DEVICES];
    unsigned rows;
};

static void look(void *context)
{
    struct needs *needs = context;
    need_of_others(process.page, needs->bytes, needs->rows);
}

struct note {
    unsigned row;
    struct page_oom *event;
};

static void note_holders(void *context)
{
    const struct note *note = context;
    need_holders(process.page, note->row, note->event);
}

void neighbours_note(const struct context *context, struct page_oom *event)
{
    struct note note = {(unsigned)context->device, event};
    if (process.page->path[0])
        files_run(note_holders, &note);
}

void neighbours_give(void)
{
    struct needs needs = {.rows = process.page->device_count};
    if (needs.rows > PEER_DEVICES)
        needs.rows = PEER_DEVICES;
    need_gives(process.page);
    if (!capture_active())
        files_run(look, &needs);
    for (unsigned row = 0; row < needs.rows; row++)
        if (needs.bytes[row])
            domain_give(process.domain, &page_device(process.page, row)->stats, needs.bytes[row]);
    need_gives(process.page);
}
