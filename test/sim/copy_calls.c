/*
 * The copy functions of the driver, all of them boxes of bytes between two places.
 */
#include "call.h"
#include "copy.h"
#include "memory.h"

#include <string.h>

CUresult copy_line(CUstream stream, uintptr_t to, uintptr_t from, size_t bytes, enum copy_wait wait,
                   const char *call)
{
    struct sim_transfer box = {.to = to, .from = from, .width = bytes, .height = 1, .depth = 1};
    return transfer_submit(stream, &box, wait, call);
}

static uintptr_t array_at(CUarray array, size_t offset)
{
    return array ? ((struct sim_array *)array)->memory->start + offset : 0;
}

#define LINE(name, parameters, to, from, device)                                                   \
    CUresult do_##name parameters                                                                  \
    {                                                                                              \
        if (!address_is_known((uintptr_t)(device)))                                                \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        return copy_line(NULL, (uintptr_t)(to), (uintptr_t)(from), n, COPY_SYNC, #name);           \
    }
#define LINE_ASYNC(name, parameters, to, from, device)                                             \
    CUresult do_##name parameters                                                                  \
    {                                                                                              \
        if (!address_is_known((uintptr_t)(device)))                                                \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        return copy_line(s, (uintptr_t)(to), (uintptr_t)(from), n, COPY_ASYNC, #name);             \
    }

/* The last column must be memory the device knows; the generic ones take anything (0 is known). */
LINE(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t n), to, from, 0)
LINE(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t n), to, from, to)
LINE(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t n), to, from, from)
LINE(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t n), to, from, to)
LINE(cuMemcpyDtoA_v2, (CUarray a, size_t at, CUdeviceptr d, size_t n), array_at(a, at), d, d)
LINE(cuMemcpyAtoD_v2, (CUdeviceptr d, CUarray a, size_t at, size_t n), d, array_at(a, at), d)
LINE(cuMemcpyHtoA_v2, (CUarray a, size_t at, const void *h, size_t n), array_at(a, at), h, 0)
LINE(cuMemcpyAtoH_v2, (void *h, CUarray a, size_t at, size_t n), h, array_at(a, at), 0)
LINE(cuMemcpyAtoA_v2, (CUarray to, size_t to_at, CUarray from, size_t at, size_t n),
     array_at(to, to_at), array_at(from, at), 0)
LINE_ASYNC(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s), to, from, 0)
LINE_ASYNC(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t n, CUstream s), to, from,
           to)
LINE_ASYNC(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t n, CUstream s), to, from, from)
LINE_ASYNC(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s), to, from,
           to)
LINE_ASYNC(cuMemcpyHtoAAsync_v2, (CUarray a, size_t at, const void *h, size_t n, CUstream s),
           array_at(a, at), h, 0)
LINE_ASYNC(cuMemcpyAtoHAsync_v2, (void *h, CUarray a, size_t at, size_t n, CUstream s), h,
           array_at(a, at), 0)

CUresult do_cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                         CUcontext from_context, size_t bytes)
{
    (void)to_context, (void)from_context;
    return copy_line(NULL, to, from, bytes, COPY_SYNC, "cuMemcpyPeer");
}

CUresult do_cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                              CUcontext from_context, size_t bytes, CUstream stream)
{
    (void)to_context, (void)from_context;
    return copy_line(stream, to, from, bytes, COPY_ASYNC, "cuMemcpyPeerAsync");
}

static int place_resolve(const struct sim_place *place, const struct sim_transfer *box,
                         uintptr_t *at, size_t *pitch, size_t *slice)
{
    size_t height = place->height ? place->height : place->y + box->height;
    *pitch = place->pitch ? place->pitch : place->x + box->width;
    *slice = *pitch * height;
    switch (place->type) {
    case CU_MEMORYTYPE_HOST:
        *at = (uintptr_t)place->host;
        break;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        *at = place->device;
        break;
    case CU_MEMORYTYPE_ARRAY:
        if (!place->array)
            return 0;
        *at = array_at(place->array, 0);
        *pitch = ((struct sim_array *)place->array)->pitch;
        *slice = ((struct sim_array *)place->array)->slice;
        break;
    default:
        return 0;
    }
    *at += place->x + place->y * *pitch + place->z * *slice;
    return *pitch >= box->width;
}

CUresult copy_box(CUstream stream, const struct sim_place *to, const struct sim_place *from,
                  struct sim_transfer box, enum copy_wait wait, const char *call)
{
    if (!place_resolve(to, &box, &box.to, &box.to_pitch, &box.to_slice) ||
        !place_resolve(from, &box, &box.from, &box.from_pitch, &box.from_slice))
        return CUDA_ERROR_INVALID_VALUE;
    return transfer_submit(stream, &box, wait, call);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *copy, CUstream stream, enum copy_wait wait,
                        const char *call)
{
    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_place to = {copy->dstMemoryType,
                           copy->dstHost,
                           copy->dstDevice,
                           copy->dstArray,
                           copy->dstXInBytes,
                           copy->dstY,
                           0,
                           copy->dstPitch,
                           0};
    struct sim_place from = {copy->srcMemoryType,
                             copy->srcHost,
                             copy->srcDevice,
                             copy->srcArray,
                             copy->srcXInBytes,
                             copy->srcY,
                             0,
                             copy->srcPitch,
                             0};
    struct sim_transfer box = {.width = copy->WidthInBytes, .height = copy->Height, .depth = 1};
    return copy_box(stream, &to, &from, box, wait, call);
}

CUresult do_cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy)
{
    return copy_2d(copy, NULL, COPY_SYNC, "cuMemcpy2D");
}

CUresult do_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy)
{
    return copy_2d(copy, NULL, COPY_SYNC, "cuMemcpy2DUnaligned");
}

CUresult do_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    return copy_2d(copy, stream, COPY_ASYNC, "cuMemcpy2DAsync");
}

static CUresult copy_3d(const CUDA_MEMCPY3D *copy, CUstream stream, enum copy_wait wait,
                        const char *call)
{
    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_place to = {copy->dstMemoryType, copy->dstHost,     copy->dstDevice,
                           copy->dstArray,      copy->dstXInBytes, copy->dstY,
                           copy->dstZ,          copy->dstPitch,    copy->dstHeight};
    struct sim_place from = {copy->srcMemoryType, copy->srcHost,     copy->srcDevice,
                             copy->srcArray,      copy->srcXInBytes, copy->srcY,
                             copy->srcZ,          copy->srcPitch,    copy->srcHeight};
    struct sim_transfer box = {
        .width = copy->WidthInBytes, .height = copy->Height, .depth = copy->Depth};
    return copy_box(stream, &to, &from, box, wait, call);
}

CUresult do_cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy)
{
    return copy_3d(copy, NULL, COPY_SYNC, "cuMemcpy3D");
}

CUresult do_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    return copy_3d(copy, stream, COPY_ASYNC, "cuMemcpy3DAsync");
}

/* The contexts name nothing that the addresses do not. */
static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *peer, CUstream stream, enum copy_wait wait,
                             const char *call)
{
    if (!peer)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D copy = {.srcXInBytes = peer->srcXInBytes,
                          .srcY = peer->srcY,
                          .srcZ = peer->srcZ,
                          .srcMemoryType = peer->srcMemoryType,
                          .srcHost = peer->srcHost,
                          .srcDevice = peer->srcDevice,
                          .srcArray = peer->srcArray,
                          .srcPitch = peer->srcPitch,
                          .srcHeight = peer->srcHeight,
                          .dstXInBytes = peer->dstXInBytes,
                          .dstY = peer->dstY,
                          .dstZ = peer->dstZ,
                          .dstMemoryType = peer->dstMemoryType,
                          .dstHost = peer->dstHost,
                          .dstDevice = peer->dstDevice,
                          .dstArray = peer->dstArray,
                          .dstPitch = peer->dstPitch,
                          .dstHeight = peer->dstHeight,
                          .WidthInBytes = peer->WidthInBytes,
                          .Height = peer->Height,
                          .Depth = peer->Depth};
    return copy_3d(&copy, stream, wait, call);
}

CUresult do_cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *copy)
{
    return copy_3d_peer(copy, NULL, COPY_SYNC, "cuMemcpy3DPeer");
}

CUresult do_cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *copy, CUstream stream)
{
    return copy_3d_peer(copy, stream, COPY_ASYNC, "cuMemcpy3DPeerAsync");
}
