/*
 * Batches of copies: their pieces are not ordered natively; here they run one after the other.
 */
#include "call.h"
#include "context.h"
#include "copy.h"
#include "memory.h"

CUresult batch_stream(CUstream handle, int sound)
{
    CUresult result = CUDA_SUCCESS;
    const struct sim_stream *stream = stream_from(handle, &result);
    if (!stream)
        return result;
    return sound && stream != stream->context->legacy ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult copy_batch(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count,
                           CUstream stream)
{
    CUresult result = batch_stream(stream, to && from && sizes && count);
    for (size_t i = 0; i < count && !result; i++)
        result = copy_line(stream, to[i], from[i], sizes[i], COPY_ASYNC, "cuMemcpyBatchAsync");
    return result;
}

CUresult do_cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count,
                               CUmemcpyAttributes *attributes, size_t *indices, size_t n,
                               size_t *failed, CUstream stream)
{
    (void)attributes, (void)indices, (void)n;
    if (failed)
        *failed = (size_t)-1;
    return copy_batch(to, from, sizes, count, stream);
}

CUresult do_cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count,
                                  CUmemcpyAttributes *attributes, size_t *indices, size_t n,
                                  CUstream stream)
{
    (void)attributes, (void)indices, (void)n;
    return copy_batch(to, from, sizes, count, stream);
}

/* Lengths of operands are in elements, here bytes. */
static struct sim_place place_of(const CUmemcpy3DOperand *operand)
{
    struct sim_place place = {.type = CU_MEMORYTYPE_UNIFIED};
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER) {
        place.device = operand->op.ptr.ptr;
        place.pitch = operand->op.ptr.rowLength;
        place.height = operand->op.ptr.layerHeight;
    } else {
        place.type = CU_MEMORYTYPE_ARRAY;
        place.array = operand->op.array.array;
        place.x = operand->op.array.offset.x;
        place.y = operand->op.array.offset.y;
        place.z = operand->op.array.offset.z;
    }
    return place;
}

CUresult do_cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP *copies,
                                    unsigned long long flags, CUstream stream)
{
    CUresult result = batch_stream(stream, copies && count && !flags);
    for (size_t i = 0; i < count && !result; i++) {
        struct sim_place to = place_of(&copies[i].dst), from = place_of(&copies[i].src);
        struct sim_transfer box = {.width = copies[i].extent.width,
                                   .height = copies[i].extent.height,
                                   .depth = copies[i].extent.depth};
        result = copy_box(stream, &to, &from, box, COPY_ASYNC, "cuMemcpy3DBatchAsync");
    }
    return result;
}

CUresult do_cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, size_t *failed,
                                 unsigned long long flags, CUstream stream)
{
    if (failed)
        *failed = (size_t)-1;
    return do_cuMemcpy3DBatchAsync_v2(count, copies, flags, stream);
}
