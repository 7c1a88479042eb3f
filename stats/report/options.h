/* What the caller of a report says about it. */
#ifndef CACHALOT_STATS_REPORT_OPTIONS_H
#define CACHALOT_STATS_REPORT_OPTIONS_H

enum report_kind { REPORT_EXIT, REPORT_SIGNAL, REPORT_REQUEST, REPORT_HARVEST };

struct report_options {
    enum report_kind kind;
    const char *exit_reason;    /* "running", "exit", "killed", "signal", "exec", "unknown" */
    int exit_code, exit_signal; /* -1 unknown, 0 none */
    const char *output;         /* path; NULL: the page's */
    void (*announce)(const char *path); /* called before a path is written; NULL: nothing is */
};

#endif
