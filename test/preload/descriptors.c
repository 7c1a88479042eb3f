/* A program of one thread has its descriptors to itself, whatever we write meanwhile: the lowest
 * number is the next one's, what is put at a number stays there, and a child has no more than it
 * should. Arguments: seconds; "old" if the kernel has no close_range. Asks for reports by SIGUSR1.
 * */
#include "driver_case.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NUMBERS = 12, MOST = 300 };

static void take_away_close_range(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof code / sizeof *code, code};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* In a forked child nothing may be allocated: another thread may have been at it. */
static int count_open(void)
{
    int count = 0;
    for (int fd = 0; fd < MOST; fd++)
        count += fcntl(fd, F_GETFD) != -1;
    return count;
}

static int is_lowest(void)
{
    close(0);
    int fd = open("/dev/null", O_RDONLY);
    if (fd > 0) {
        dup2(fd, 0);
        close(fd);
    }
    return fd == 0;
}

/* Through a pipe at each of the low numbers. */
static int stays(const int *pipe_ends)
{
    char byte = 'x';
    int good = 1;
    for (int fd = 3; fd < NUMBERS; fd++) {
        good &= dup2(pipe_ends[1], fd) == fd && write(fd, &byte, 1) == 1 && close(fd) == 0;
        good &= dup2(pipe_ends[0], fd) == fd && read(fd, &byte, 1) == 1 && close(fd) == 0;
    }
    return good;
}

static int inherits(int count)
{
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child)
        _exit(count_open() != count);
    CHECK(waitpid(child, &status, 0) == child);
    return status == 0;
}

int main(int count, char **argument)
{
    int low[2], ends[2];
    unsigned long lowest = 0, stay = 0, inherit = 0;
    CHECK(count >= 2);
    if (count > 2)
        take_away_close_range();
    CHECK(pipe(ends) == 0);
    begin();
    OK(cuMemFree(make(1000)));
    usleep(300000);
    close(ends[1]);
    struct pollfd wait = {.fd = ends[0]};
    SAY(poll(&wait, 1, 1000)); /* nobody else has the other end */
    close(ends[0]);
    CHECK(pipe(low) == 0);
    for (int i = 0; i < 2; i++) {
        ends[i] = fcntl(low[i], F_DUPFD, 100);
        close(low[i]);
    }
    for (int fd = 3; fd < NUMBERS; fd++)
        close(fd);
    int open_now = count_open();
    for (time_t end = time(NULL) + atoi(argument[1]); time(NULL) < end;) {
        kill(getpid(), SIGUSR1);
        for (int i = 0; i < 50; i++) {
            lowest += !is_lowest();
            stay += !stays(ends);
        }
        inherit += !inherits(open_now);
    }
    SAY(lowest);
    SAY(stay);
    SAY(inherit);
    return 0;
}
