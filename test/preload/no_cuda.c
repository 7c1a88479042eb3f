/* Never touches CUDA. What there is of threads, open files and signal handlers. */
#include <dirent.h>
#include <signal.h>
#include <string.h>

#include "case.h"

static int count_entries(const char *path)
{
    DIR *directory = opendir(path);
    int count = 0;
    while (directory && readdir(directory))
        count++;
    closedir(directory);
    return count;
}

int main(void)
{
    struct sigaction action;
    SAY(count_entries("/proc/self/task"));
    SAY(count_entries("/proc/self/fd"));
    for (int number = 1; number < NSIG; number++)
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL)
            printf("signal %d\n", number);
    return 0;
}
