/* Forked children: of a process that uses CUDA already (they cannot), or that does not yet.
 * Arguments: when the parent begins (before or after the fork), and what the child does (exit,
 * _exit, use; clone: exit, made without fork). */
#include <cuda_runtime_api.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "case.h"

int main(int count, char **argument)
{
    void *block = NULL, *more = NULL;
    int status;
    CHECK(count == 3);
    int before = strcmp(argument[1], "before") == 0;
    if (before) {
        OK(cudaMalloc(&block, 1000));
        OK(cudaMemsetAsync(block, 0, 1000, NULL)); /* the stream is on the books */
    }
    fflush(stdout);
    for (int i = 0; i < 3; i++) {
        pid_t child =
            strcmp(argument[2], "clone") ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0) {
            if (strcmp(argument[2], "_exit") == 0)
                _exit(3);
            if (strcmp(argument[2], "use") == 0) {
                SAY(before ? cudaMemsetAsync(block, 0, 1000, NULL) : 0);
                SAY(cudaMalloc(&more, 1000));
                SAY(cudaFree(before ? block : more));
            }
            exit(3);
        }
        OK(waitpid(child, &status, 0) != child);
        SAY(WEXITSTATUS(status));
    }
    if (!before)
        OK(cudaMalloc(&block, 1000));
    for (int i = 0; i < 100; i++) {
        OK(cudaMalloc(&more, 1000));
        OK(cudaFree(more));
    }
    SAY(cudaFree(block));
    return 0;
}
