/* What the environment asks for. Read once, when service starts. */
#ifndef CACHALOT_INTERPOSE_PROCESS_CONFIG_H
#define CACHALOT_INTERPOSE_PROCESS_CONFIG_H

#include <limits.h>

#include "allocator/base/options.h"
#include "stats/page/page.h"

#define MOST_PROBLEMS 8

struct config {
    struct options options;
    /* Copies, since a program may write over its environment. */
    char page_dir[PATH_MAX]; /* absolute; empty: the default */
    char log[PATH_MAX];      /* CACHALOT_LOG: "stderr" or a file, absolute; empty: none */
    char trace[PATH_MAX];    /* CACHALOT_TRACE: a pattern; empty: none */
    unsigned sites;          /* CACHALOT_SITES: one request of so many; 0: none */
    int signal;              /* 0: none */
    unsigned events;         /* CACHALOT_EVENTS, a power of two; 0: none */
    int redact_argv;
    char problem[MOST_PROBLEMS][256]; /* what was wrong, to be said once there is a page */
    unsigned problems;                /* also those for which there was no room */
};

/* Is this program meant at all (CACHALOT_DISABLE, CACHALOT_ONLY, AT_SECURE)? Needs nothing but the
 * environment. */
int config_enabled(void);

/* When the process starts: relative names mean this directory, wherever a daemon goes later, and our
 * variables count as they are, should it clean its environment. Holds in forked children too. */
void config_note_start(void);

void config_read(struct config *config);

/* NULL: the default. */
const char *config_page_dir(const struct config *config);

/* Writes options with their sources, session, rank and the report's path into the page, which is
 * the process's, and gives the warnings about them. */
void config_publish(const struct config *config, struct page *page);

/* Where the trace goes, as an absolute path; empty, with a warning, if that cannot be. */
void config_trace_path(const struct config *config, const struct page *page, char *path,
                       size_t size);

#endif
