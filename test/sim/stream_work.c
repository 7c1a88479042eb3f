/*
 * Work that is no kernel, copy or set: stream memory operations, and what moves or drops memory.
 */
#include "call.h"
#include "config.h"
#include "context.h"
#include "copy.h"
#include "memory.h"

static CUresult value_submit(CUstream handle, CUdeviceptr address, uint64_t value, unsigned bytes,
                             unsigned flags, int writes, const char *call)
{
    CUresult result = CUDA_SUCCESS;
    struct sim_stream *stream = stream_from(handle, &result);
    if (!stream)
        return result;
    if (address % bytes || !memory_find(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {.kind = WORK_VALUE,
                            .call = call,
                            .value_address = address,
                            .value = value,
                            .value_bytes = bytes,
                            .value_flags = flags,
                            .value_writes = writes,
                            .visible = 1};
    work_add_range(&work, (struct sim_range){address, bytes, 0, 1, writes});
    return stream_submit(stream, &work, NULL);
}

#define VALUE(name, type, writes)                                                                  \
    CUresult do_##name(CUstream stream, CUdeviceptr address, type value, unsigned flags)           \
    {                                                                                              \
        return value_submit(stream, address, value, sizeof(type), flags, writes, #name);           \
    }
VALUE(cuStreamWaitValue32_v2, cuuint32_t, 0)
VALUE(cuStreamWriteValue32_v2, cuuint32_t, 1)
VALUE(cuStreamWaitValue64_v2, cuuint64_t, 0)
VALUE(cuStreamWriteValue64_v2, cuuint64_t, 1)

static CUresult batch_one(CUstream stream, const CUstreamBatchMemOpParams *op)
{
    const char *call = "cuStreamBatchMemOp";
    switch (op->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        return value_submit(stream, op->waitValue.address, op->waitValue.value, 4,
                            op->waitValue.flags, 0, call);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        return value_submit(stream, op->writeValue.address, op->writeValue.value, 4, 0, 1, call);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        return value_submit(stream, op->waitValue.address, op->waitValue.value64, 8,
                            op->waitValue.flags, 0, call);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return value_submit(stream, op->writeValue.address, op->writeValue.value64, 8, 0, 1, call);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult do_cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams *ops,
                                  unsigned flags)
{
    (void)flags;
    CUresult result = count && !ops ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    for (unsigned i = 0; i < count && !result; i++)
        result = batch_one(stream, &ops[i]);
    return result;
}

/* What moves or drops managed memory: `writes` if its bytes are lost. */
static CUresult touch_submit(CUstream handle, CUdeviceptr address, size_t bytes, int writes,
                             const char *call)
{
    CUresult result = CUDA_SUCCESS;
    struct sim_stream *stream = stream_from(handle, &result);
    if (!stream)
        return result;
    struct sim_memory *memory = memory_find(address, 1);
    if (!memory || memory->kind != MEMORY_MANAGED)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {.kind = WORK_TOUCH, .call = call, .ns = config()->latency_ns};
    work_add_range(&work, (struct sim_range){address, bytes, 0, 1, writes});
    return stream_submit(stream, &work, NULL);
}

static CUresult touch_batch(CUstream stream, const CUdeviceptr *addresses, const size_t *bytes,
                            size_t count, int writes, const char *call)
{
    CUresult result = batch_stream(stream, addresses && bytes && count);
    for (size_t i = 0; i < count && !result; i++)
        result = touch_submit(stream, addresses[i], bytes[i], writes, call);
    return result;
}

CUresult do_cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream)
{
    (void)device;
    return touch_submit(stream, address, bytes, 0, "cuMemPrefetchAsync");
}

CUresult do_cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location,
                                  unsigned flags, CUstream stream)
{
    (void)location, (void)flags;
    return touch_submit(stream, address, bytes, 0, "cuMemPrefetchAsync");
}

CUresult do_cuMemPrefetchBatchAsync(CUdeviceptr *addresses, size_t *bytes, size_t count,
                                    CUmemLocation *places, size_t *indices, size_t n,
                                    unsigned long long flags, CUstream stream)
{
    (void)places, (void)indices, (void)n, (void)flags;
    return touch_batch(stream, addresses, bytes, count, 0, "cuMemPrefetchBatchAsync");
}

CUresult do_cuMemDiscardBatchAsync(CUdeviceptr *addresses, size_t *bytes, size_t count,
                                   unsigned long long flags, CUstream stream)
{
    (void)flags;
    return touch_batch(stream, addresses, bytes, count, 1, "cuMemDiscardBatchAsync");
}

CUresult do_cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *addresses, size_t *bytes, size_t count,
                                              CUmemLocation *places, size_t *indices, size_t n,
                                              unsigned long long flags, CUstream stream)
{
    (void)places, (void)indices, (void)n, (void)flags;
    return touch_batch(stream, addresses, bytes, count, 1, "cuMemDiscardAndPrefetchBatchAsync");
}

CUresult do_cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t bytes,
                                   unsigned flags)
{
    (void)flags;
    return touch_submit(stream, address, bytes ? bytes : 1, 0, "cuStreamAttachMemAsync");
}

/* Touches the bytes that it names, and decompresses nothing. */
CUresult do_cuMemBatchDecompressAsync(CUmemDecompressParams *operations, size_t count,
                                      unsigned flags, size_t *failed, CUstream handle)
{
    CUresult result = operations && count && !flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    struct sim_stream *stream = stream_from(handle, &result);
    if (failed)
        *failed = 0;
    if (result)
        return result;
    struct sim_work work = {
        .kind = WORK_TOUCH, .call = "cuMemBatchDecompressAsync", .ns = config()->latency_ns};
    for (size_t i = 0; i < count; i++) {
        const CUmemDecompressParams *one = &operations[i];
        work_add_range(&work, (struct sim_range){(uintptr_t)one->src, one->srcNumBytes, 0, 1, 0});
        work_add_range(&work, (struct sim_range){(uintptr_t)one->dst, one->dstNumBytes, 0, 1, 1});
    }
    return stream_submit(stream, &work, NULL);
}
