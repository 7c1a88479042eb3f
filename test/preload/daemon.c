/* Becomes a daemon (two forks, a session of its own, all files closed, in /), then makes 6
 * requests. The parent ends when that is done. */
#include <cuda_runtime_api.h>
#include <sys/wait.h>

#include "case.h"

static _Noreturn void serve(int done)
{
    void *block[6];
    OK(chdir("/"));
    for (int fd = 0; fd < 64; fd++)
        if (fd != done)
            close(fd);
    for (int i = 0; i < 6; i++)
        OK(cudaMalloc(&block[i], 1000));
    for (int i = 0; i < 5; i++)
        OK(cudaFree(block[i]));
    exit(3); /* and with it the pipe ends */
}

int main(void)
{
    int ends[2];
    char none;
    OK(pipe(ends));
    pid_t child = fork();
    if (child == 0) {
        setsid();
        if (fork() == 0)
            serve(ends[1]);
        _exit(0);
    }
    close(ends[1]);
    OK(waitpid(child, NULL, 0) != child);
    SAY(read(ends[0], &none, 1));
    return 0;
}
