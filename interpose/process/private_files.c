#include "interpose/process/private_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sys/syscall.h>

#include "interpose/process/own_thread.h"

#define CLOSE_RANGE 436 /* SYS_close_range, of Linux 5.9; the same number on all processors */
#define CLOSED_IN_A_TABLE_OF_ITS_OWN 2 /* CLOSE_RANGE_UNSHARE */

/* Closes the copies of the program's descriptors: a copy would keep a pipe open that the program
 * closes. */
static void close_copies(void)
{
    DIR *listing = opendir("/proc/thread-self/fd");
    for (const struct dirent *entry; listing && (entry = readdir(listing));) {
        int fd = atoi(entry->d_name);
        if (fd != dirfd(listing))
            close(fd);
    }
    if (listing)
        closedir(listing);
}

/* TSan believes that all threads of a process share one descriptor table. */
#ifdef __SANITIZE_THREAD__
#define MAY_PART 0
#else
#define MAY_PART 1
#endif

static _Thread_local int apart;

void files_apart(void)
{
    if (apart || !MAY_PART)
        return;
    apart = syscall(CLOSE_RANGE, 0, ~0U, CLOSED_IN_A_TABLE_OF_ITS_OWN) == 0;
    if (!apart && unshare(CLONE_FILES) == 0) {
        apart = 1;
        close_copies();
    }
}

int files_stderr(void)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/fd/2", getpid());
    return apart ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
                 : STDERR_FILENO;
}

int files_are_apart(void)
{
    return apart;
}

struct job {
    void (*function)(void *);
    void *argument;
};

static void *run(void *what)
{
    const struct job *job = what;
    own_thread_begins("cachalot-files");
    files_apart();
    job->function(job->argument);
    own_thread_ends();
    return NULL;
}

void files_run(void (*function)(void *), void *argument)
{
    struct job job = {function, argument};
    pthread_t thread;
    if (own_thread_create(&thread, run, &job) == 0)
        pthread_join(thread, NULL);
    else
        function(argument);
}
