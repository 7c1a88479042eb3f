#include "interpose/stream/copy_destination.h"

#include "interpose/resolve/real_driver.h"

/* Asked in the plural form, an unknown address is type 0 and not an error. */
DIRECT int destination_is_host(CUdeviceptr pointer)
{
    CUmemorytype type = 0;
    unsigned managed = 0;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_IS_MANAGED};
    void *values[] = {&type, &managed};
    return real()->cuPointerGetAttributes(2, attributes, values, pointer) != CUDA_SUCCESS ||
           type != CU_MEMORYTYPE_DEVICE || managed;
}

/* An address given as device memory may be a unified address of the host. */
static int is_host(CUmemorytype type, CUdeviceptr pointer)
{
    return type == CU_MEMORYTYPE_HOST ||
           (type != CU_MEMORYTYPE_ARRAY && destination_is_host(pointer));
}

int destination_2d(const CUDA_MEMCPY2D *copy)
{
    return copy && is_host(copy->dstMemoryType, copy->dstDevice);
}

int destination_2d_v1(const CUDA_MEMCPY2D_v1 *copy)
{
    return copy && is_host(copy->dstMemoryType, copy->dstDevice);
}

int destination_3d(const CUDA_MEMCPY3D *copy)
{
    return copy && is_host(copy->dstMemoryType, copy->dstDevice);
}

int destination_3d_v1(const CUDA_MEMCPY3D_v1 *copy)
{
    return copy && is_host(copy->dstMemoryType, copy->dstDevice);
}

int destination_3d_peer(const CUDA_MEMCPY3D_PEER *copy)
{
    return copy && is_host(copy->dstMemoryType, copy->dstDevice);
}

int destination_batch(const CUdeviceptr *pointers, size_t count)
{
    int host = 0;
    for (size_t i = 0; pointers && i < count && !host; i++)
        host = destination_is_host(pointers[i]);
    return host;
}

int destination_3d_batch(const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count)
{
    int host = 0;
    for (size_t i = 0; copies && i < count && !host; i++)
        host = copies[i].dst.type == CU_MEMCPY_OPERAND_TYPE_POINTER &&
               destination_is_host(copies[i].dst.op.ptr.ptr);
    return host;
}
