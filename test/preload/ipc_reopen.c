/* Memory of another process is closed where no wait for its last use can be had (a capture, and the
 * device is full), and opened again. */
#include <sys/wait.h>

#include "driver_case.h"

static void fill(void)
{
    CUdeviceptr filler;
    for (size_t bytes = 1024 * MIB; bytes >= 512; bytes /= 2)
        while (cuMemAlloc(&filler, bytes) == CUDA_SUCCESS)
            ;
}

static void open_and_close(const CUipcMemHandle *handle, void (*between)(void))
{
    CUdeviceptr pointer = 0;
    unsigned type;
    SAY(cuIpcOpenMemHandle(&pointer, *handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    SAY(pointer != 0);
    SAY(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                              (CUdeviceptr)(uintptr_t)&type));
    if (between)
        between();
    SAY(cuIpcCloseMemHandle(pointer));
}

int main(void)
{
    CUipcMemHandle handle;
    CUstream stream;
    CUgraph graph;
    int there[2], back[2];
    char byte;
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
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    open_and_close(&handle, fill);
    SAY(cuStreamEndCapture(stream, &graph));
    open_and_close(&handle, NULL);
    open_and_close(&handle, NULL);
    close(back[1]);
    wait(NULL);
    return 0;
}
