/* Copies to host memory by all names that it has: done when a block is freed. */
#include "driver_case.h"

#define BYTES 4096u

static unsigned char *host;
static CUdeviceptr block;
static CUcontext context;

static void copy(CUstream stream, int way)
{
    CUdeviceptr to = (CUdeviceptr)host;
    CUDA_MEMCPY2D flat = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = block,
                          .dstDevice = to,
                          .WidthInBytes = BYTES,
                          .Height = 1};
    CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = block,
                         .dstDevice = to,
                         .WidthInBytes = BYTES,
                         .Height = 1,
                         .Depth = 1};
    CUDA_MEMCPY3D_PEER peer = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .srcDevice = block,
                               .dstDevice = to,
                               .srcContext = context,
                               .dstContext = context,
                               .WidthInBytes = BYTES,
                               .Height = 1,
                               .Depth = 1};
    switch (way) {
    case 0:
        OK(cuMemcpyDtoHAsync_v2(host, block, BYTES, stream));
        break;
    case 1:
        OK(cuMemcpyAsync(to, block, BYTES, stream));
        break;
    case 2:
        OK(cuMemcpyDtoDAsync_v2(to, block, BYTES, stream));
        break;
    case 3:
        OK(cuMemcpyPeerAsync(to, context, block, context, BYTES, stream));
        break;
    case 4:
        OK(cuMemcpy2DAsync_v2(&flat, stream));
        break;
    case 5:
        OK(cuMemcpy3DAsync_v2(&box, stream));
        break;
    default:
        OK(cuMemcpy3DPeerAsync(&peer, stream));
    }
}

int main(void)
{
    CUstream stream;
    context = begin();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemHostAlloc((void **)&host, BYTES, 0));
    block = make(BYTES);
    for (int way = 0; way < 7; way++) {
        CUdeviceptr other = make(5 * MIB);
        host[BYTES - 1] = 0;
        OK(cuMemsetD8_v2(block, (unsigned char)(way + 1), BYTES));
        OK(cuCtxSynchronize()); /* the stream does not wait for the legacy one */
        OK(cachalot_sim_launch(stream, 20000000, NULL, 0));
        copy(stream, way);
        OK(cuMemFree(other));
        SAY(host[BYTES - 1]);
    }
    return 0;
}
