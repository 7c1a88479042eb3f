#include "interpose/files.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose/process.h"
#include "interpose/service.h"
#include "interpose/service_parts.h"

#define LOGGED_TO 2
#define CLOSE_RANGE 436 /* the number of close_range, of Linux 5.9: on all processors */
#define CLOSED_IN_A_TABLE_OF_ITS_OWN 2 /* its CLOSE_RANGE_UNSHARE */

/* A copy of the table keeps pipes open that the program closes. */
static void close_copies(int from)
{
    DIR *listing = opendir("/proc/thread-self/fd");
    for (const struct dirent *entry; listing && (entry = readdir(listing));) {
        int fd = atoi(entry->d_name);
        if (fd >= from && fd != dirfd(listing))
            close(fd);
    }
    if (listing)
        closedir(listing);
}

void files_apart(void)
{
    int from = strcmp(process->config.log, "stderr") ? 0 : LOGGED_TO + 1;
    if (syscall(CLOSE_RANGE, from, ~0U, CLOSED_IN_A_TABLE_OF_ITS_OWN) == 0)
        return;
    if (unshare(CLONE_FILES) == 0)
        close_copies(from);
}

struct job {
    void (*function)(void *);
    void *argument;
};

static void *run(void *what)
{
    const struct job *job = what;
    service_thread_begins("cachalot-files");
    files_apart();
    job->function(job->argument);
    service_thread_ends();
    return NULL;
}

void files_run(void (*function)(void *), void *argument)
{
    struct job job = {function, argument};
    pthread_t thread;
    if (service_create_thread(&thread, run, &job) == 0)
        pthread_join(thread, NULL);
    else
        function(argument);
}
