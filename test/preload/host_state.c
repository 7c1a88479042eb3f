/* What of the host process may not change while CUDA begins and memory comes and goes. */
#include <cuda_runtime_api.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "case.h"

extern char **environ;

static void say_all(void)
{
    char text[PATH_MAX];
    DIR *directory = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(directory));) {
        int length = (int)readlinkat(dirfd(directory), entry->d_name, text, sizeof text - 1);
        if (length > 0 && !strchr(text, '[') && !strstr(text, "/proc/"))
            printf("fd %s: %s\n", entry->d_name,
                   strncmp(text, "pipe", length < 4 ? 0 : 4) ? "a file" : "a pipe");
    }
    closedir(directory);
    mode_t mask = umask(0);
    umask(mask);
    SAY(mask);
    printf("cwd %s, locale %s\n", getcwd(text, sizeof text), setlocale(LC_ALL, NULL));
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;
        if (number != SIGUSR1 && sigaction(number, NULL, &action) == 0 &&
            action.sa_handler != SIG_DFL)
            printf("signal %d is handled\n", number);
    }
    sigset_t blocked;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    SAY(sigisemptyset(&blocked));
    int variables = 0;
    for (char **variable = environ; *variable; variable++)
        variables += strncmp(*variable, "LD_PRELOAD", 10) != 0;
    SAY(variables);
    struct rlimit limit;
    getrlimit(RLIMIT_CORE, &limit);
    SAY(limit.rlim_cur);
}

int main(void)
{
    void *block[50];
    umask(027);
    say_all();
    errno = 77;
    OK(cudaFree(NULL));
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 50; i++)
            OK(cudaMalloc(&block[i], (size_t)i * i * 1000 + 1));
        for (int i = 0; i < 50; i++)
            OK(cudaFree(block[i]));
    }
    say_all();
    return 0;
}
