/* The command line of cachalot-replay. */
#ifndef CACHALOT_SCRIPTS_REPLAY_ARGUMENTS_H
#define CACHALOT_SCRIPTS_REPLAY_ARGUMENTS_H

#include "scripts/replay/replay.h"

struct arguments {
    const char *conf, *costs, *path;
    int progress, print_costs, policies;
    pid_t parent; /* who waits for what is printed; 0: nobody */
};
/* What the command line asks for, into both. Returns 0, or -1: it is none of `usage`. */
int arguments_read(int argc, char **argv, struct arguments *arguments, struct replay *replay);

#endif
