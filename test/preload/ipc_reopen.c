/* Memory of another process is closed where no wait for its last use can be had (a capture, and the
 * device is full), and opened again. */
#include "peer_case.h"

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
    CUstream stream;
    CUgraph graph;
    int peer;
    CUipcMemHandle handle = handle_of_peer(&peer);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    open_and_close(&handle, fill);
    SAY(cuStreamEndCapture(stream, &graph));
    open_and_close(&handle, NULL);
    open_and_close(&handle, NULL);
    close(peer);
    wait(NULL);
    return 0;
}
