/* 2 requests, then another program in this process: itself (with one less to go), or another by
 * exec, vfork or spawn. */
#include <cuda_runtime_api.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

#include "case.h"

extern char **environ;

int main(int count, char **argument)
{
    void *block;
    char again[16], name[] = "true", *to_true[] = {name, NULL};
    int status = -1;
    pid_t child;
    CHECK(count == 3);
    int left = atoi(argument[2]);
    OK(cudaMalloc(&block, 1000));
    OK(cudaMalloc(&block, 1000));
    printf("%d\n", left);
    fflush(stdout);
    if (strcmp(argument[1], "self") == 0 && left) {
        snprintf(again, sizeof again, "%d", left - 1);
        char *words[] = {argument[0], argument[1], again, NULL};
        execv("/proc/self/exe", words);
    }
    if (strcmp(argument[1], "other") == 0)
        execv("/bin/true", to_true);
    if (strcmp(argument[1], "fails") == 0)
        execv("/nowhere", to_true);
    if (strcmp(argument[1], "vfork") == 0) {
        if ((child = vfork()) == 0) {
            execv("/bin/true", to_true);
            _exit(1);
        }
        OK(waitpid(child, &status, 0) != child);
        SAY(status);
    }
    if (strcmp(argument[1], "spawn") == 0) {
        OK(posix_spawn(&child, "/bin/true", NULL, NULL, to_true, environ));
        OK(waitpid(child, &status, 0) != child);
        SAY(status);
    }
    if (strcmp(argument[1], "system") == 0)
        SAY(system("/bin/true"));
    SAY(cudaFree(block));
    return 0;
}
