/* For programs that open memory of another process. */
#ifndef PRELOAD_PEER_CASE_H
#define PRELOAD_PEER_CASE_H

#include <sys/wait.h>

#include "driver_case.h"

/* Forked before CUDA begins: the handle of 4 MiB in a process that lives until *end is closed. */
static inline CUipcMemHandle handle_of_peer(int *end)
{
    CUipcMemHandle handle;
    int there[2], back[2];
    char byte = 0;
    OK(pipe(there) || pipe(back));
    if (fork() == 0) {
        begin();
        OK(cuIpcGetMemHandle(&handle, make(4 * MIB)));
        CHECK(write(there[1], &handle, sizeof handle) == sizeof handle);
        close(back[1]);
        CHECK(read(back[0], &byte, 1) == 0);
        _exit(0);
    }
    close(back[0]);
    begin();
    CHECK(read(there[0], &handle, sizeof handle) == sizeof handle);
    *end = back[1];
    return handle;
}

#endif
