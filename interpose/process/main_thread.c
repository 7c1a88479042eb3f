#include "interpose/process/main_thread.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel clears this word when the main thread ends. It lies in that thread's first block of
 * thread-local memory, which the C library never frees. A forked child's main thread has another. */
static struct {
    volatile int *id;
    pid_t pid;
} noted;

void main_thread_note(void)
{
    int *id = NULL;
    pid_t pid = getpid();
    if (pid == syscall(SYS_gettid) && prctl(PR_GET_TID_ADDRESS, &id) == 0 && id && *id == pid) {
        noted.id = id;
        noted.pid = pid;
    }
}

int main_thread_lives(void)
{
    return noted.pid == getpid() ? *noted.id != 0 : -1;
}
