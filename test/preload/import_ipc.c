/* Opens and closes memory of another process. */
#include <sys/wait.h>

#include "driver_case.h"

int main(void)
{
    CUipcMemHandle handle;
    CUdeviceptr pointer;
    int there[2], back[2];
    char byte = 0;
    OK(pipe(there) || pipe(back));
    pid_t child = fork();
    if (child == 0) {
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
    SAY(cuIpcOpenMemHandle(&pointer, handle, 1));
    SAY(cuIpcCloseMemHandle(pointer));
    SAY(cuIpcCloseMemHandle(pointer));
    SAY(cuMemFree(make(4 * MIB)));
    close(back[1]);
    waitpid(child, NULL, 0);
    return 0;
}
