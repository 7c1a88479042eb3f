#include "copy.h"

#include "call.h"
#include "capture.h"
#include "config.h"
#include "context.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

int address_is_known(uintptr_t address)
{
    return memory_find(address, 1) || memory_is_device_address(address);
}

static int address_is_host(uintptr_t address)
{
    const struct sim_memory *memory = memory_find(address, 1);
    if (!memory)
        return !memory_is_device_address(address);
    return memory->kind == MEMORY_HOST || memory->kind == MEMORY_REGISTERED ||
           memory->kind == MEMORY_MANAGED;
}

static void add_box(struct sim_work *work, uintptr_t start, size_t pitch, size_t slice, int writes)
{
    const struct sim_transfer *box = &work->transfer;
    if (!address_is_known(start))
        return;
    if (box->depth == 1 || slice == pitch * box->height) {
        size_t rows = box->height * box->depth;
        if (rows == 1 || pitch == box->width)
            work_add_range(work, (struct sim_range){start, box->width * rows, 0, 1, writes});
        else
            work_add_range(work, (struct sim_range){start, box->width, pitch, rows, writes});
        return;
    }
    for (size_t z = 0; z < box->depth; z++)
        work_add_range(
            work, (struct sim_range){start + z * slice, box->width, pitch, box->height, writes});
}

/* The driver has read a pageable source when the call returns. */
static void stage_source(struct sim_work *work)
{
    struct sim_transfer *box = &work->transfer;
    struct sim_transfer pack = *box;
    work->staged = malloc(box->width * box->height * box->depth);
    if (!work->staged)
        abort();
    pack.to = (uintptr_t)work->staged;
    pack.to_pitch = box->width;
    pack.to_slice = box->width * box->height;
    transfer_carry_out(&pack);
    box->from = pack.to;
    box->from_pitch = pack.to_pitch;
    box->from_slice = pack.to_slice;
}

static int host_waits(const struct sim_transfer *box, enum copy_wait wait)
{
    if (box->value_bytes)
        return 0;
    if (!address_is_known(box->to))
        return 1;
    return wait == COPY_SYNC && (address_is_host(box->from) || address_is_host(box->to));
}

CUresult transfer_submit(CUstream handle, const struct sim_transfer *transfer, enum copy_wait wait,
                         const char *call)
{
    CUresult result = CUDA_SUCCESS;
    struct sim_stream *stream = stream_from(handle, &result);
    if (!stream)
        return result;
    if (wait == COPY_SYNC)
        result = capture_unsafe();
    if (result)
        return result;
    if (transfer->width == 0 || transfer->height == 0 || transfer->depth == 0)
        return CUDA_SUCCESS;
    int is_set = transfer->value_bytes != 0;
    struct sim_work work = {.kind = is_set ? WORK_SET : WORK_COPY,
                            .call = call,
                            .ns = config()->latency_ns,
                            .transfer = *transfer};
    add_box(&work, transfer->to, transfer->to_pitch, transfer->to_slice, 1);
    int waits = host_waits(transfer, wait) && !stream->capture;
    if (!is_set) {
        add_box(&work, transfer->from, transfer->from_pitch, transfer->from_slice, 0);
        if (!address_is_known(transfer->from) && !waits && !stream->capture)
            stage_source(&work);
    }
    work.visible = !waits && address_is_host(transfer->to);
    struct sim_point point = {0, 0};
    result = stream_submit(stream, &work, &point);
    if (!result && waits)
        engine_wait(point);
    return result;
}

static CUresult set_submit(CUstream stream, CUdeviceptr to, size_t pitch, unsigned value,
                           unsigned value_bytes, size_t width, size_t height, enum copy_wait wait,
                           const char *call)
{
    struct sim_transfer box = {.to = to,
                               .to_pitch = pitch,
                               .width = width * value_bytes,
                               .height = height,
                               .depth = 1,
                               .value = value,
                               .value_bytes = value_bytes};
    if (to % value_bytes || (height > 1 && pitch < box.width) || !address_is_known(to))
        return CUDA_ERROR_INVALID_VALUE;
    return transfer_submit(stream, &box, wait, call);
}

#define SET_1D(bits, type)                                                                         \
    CUresult do_cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t count)                     \
    {                                                                                              \
        return set_submit(NULL, to, 0, value, bits / 8, count, 1, COPY_SYNC, "cuMemsetD" #bits);   \
    }                                                                                              \
    CUresult do_cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t count, CUstream in)      \
    {                                                                                              \
        return set_submit(in, to, 0, value, bits / 8, count, 1, COPY_ASYNC,                        \
                          "cuMemsetD" #bits "Async");                                              \
    }
#define SET_2D(bits, type)                                                                         \
    CUresult do_cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width,     \
                                       size_t height)                                              \
    {                                                                                              \
        return set_submit(NULL, to, pitch, value, bits / 8, width, height, COPY_SYNC,              \
                          "cuMemsetD2D" #bits);                                                    \
    }                                                                                              \
    CUresult do_cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width,   \
                                         size_t height, CUstream in)                               \
    {                                                                                              \
        return set_submit(in, to, pitch, value, bits / 8, width, height, COPY_ASYNC,               \
                          "cuMemsetD2D" #bits "Async");                                            \
    }

SET_1D(8, unsigned char)
SET_1D(16, unsigned short)
SET_1D(32, unsigned int)
SET_2D(8, unsigned char)
SET_2D(16, unsigned short)
SET_2D(32, unsigned int)
