/* Exported: Cachalot's own functions, which a program calls to sleep and to wake. */
#include "interpose/sleep/sleep.h"

#include <errno.h>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED int cachalot_sleep(unsigned flags)
{
    struct sleep_answer answer;
    int error = errno, code = sleep_begin(flags, &answer);
    errno = error;
    return code;
}

EXPORTED int cachalot_wake(void)
{
    struct sleep_answer answer;
    int error = errno, code = sleep_end(&answer);
    errno = error;
    return code;
}
