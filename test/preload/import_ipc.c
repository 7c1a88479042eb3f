/* Opens and closes memory of another process. */
#include "peer_case.h"

int main(void)
{
    CUdeviceptr pointer;
    int peer;
    CUipcMemHandle handle = handle_of_peer(&peer);
    SAY(cuIpcOpenMemHandle(&pointer, handle, 1));
    SAY(cuIpcCloseMemHandle(pointer));
    SAY(cuIpcCloseMemHandle(pointer));
    SAY(cuMemFree(make(4 * MIB)));
    close(peer);
    wait(NULL);
    return 0;
}
