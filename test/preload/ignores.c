/* Ignores the signal by which others are asked for a report, and so do programs that it starts. */
#include <cuda_runtime.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    void *block;
    int status;
    signal(SIGUSR1, SIG_IGN);
    if (cudaMalloc(&block, 1000))
        return 2;
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", "kill -USR1 $$; exit 5", (char *)NULL);
        _exit(1);
    }
    waitpid(child, &status, 0);
    raise(SIGUSR1);
    printf("child: %x, handler: %d\n", (unsigned)status, signal(SIGUSR1, SIG_IGN) == SIG_IGN);
    return cudaFree(block);
}
