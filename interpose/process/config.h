/* The options and variables that the environment sets. They are read once, when service starts. */
#ifndef CACHALOT_INTERPOSE_PROCESS_CONFIG_H
#define CACHALOT_INTERPOSE_PROCESS_CONFIG_H

#include <limits.h>

#include "allocator/base/options.h"
#include "stats/page/page.h"

#define MOST_PROBLEMS 8

struct config {
    struct options options;
    /* Copies: a program may overwrite its environment. */
    char page_dir[PATH_MAX]; /* absolute; empty: the default */
    char log[PATH_MAX];      /* CACHALOT_LOG: "stderr" or a file, absolute; empty: none */
    char trace[PATH_MAX];    /* CACHALOT_TRACE: a pattern; empty: none */
    unsigned sites;  /* CACHALOT_SITES: one request of so many, or SITES_BY_BYTES; 0: none */
    int signal;      /* 0: none */
    unsigned events; /* CACHALOT_EVENTS, a power of two; 0: none */
    int redact_argv;
    char group[128];                  /* the name of the group of processes; empty: the cgroup's */
    char problem[MOST_PROBLEMS][256]; /* the warnings, until there is a page to put them into */
    unsigned problems;                /* their number, also of those that found no room above */
};

/* Does the environment want this program to be served (CACHALOT_DISABLE, CACHALOT_ONLY, AT_SECURE)?
 * Needs nothing but the environment. */
int config_enabled(void);

/* Notes the working directory and our variables at the start of the process: relative names refer
 * to this directory although a daemon may leave it, and the variables count although the program
 * may clean its environment. Forked children use the same notes. */
void config_note_start(void);

/* The number of the signal that asks for a report; 0: none. */
int config_signal(void);

void config_read(struct config *config);

/* NULL: the default. */
const char *config_page_dir(const struct config *config);

/* A function that gives a warning: process_warn. */
typedef void config_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes the options with their sources, the session, the rank and the report's path into the
 * process's page, and gives the warnings about them. */
void config_publish(const struct config *config, struct page *page, config_warn *warn);

/* Writes the absolute path of the trace into `path`. On failure `path` is empty and a warning is
 * given. */
void config_trace_path(const struct config *config, const struct page *page, char *path,
                       size_t size, config_warn *warn);

#endif
