#include "call.h"
#include "capture.h"
#include "config.h"
#include "context.h"
#include "memory.h"

#include <stdio.h>
#include <string.h>

CUresult do_cuInit(unsigned flags)
{
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (config()->devices == 0)
        return CUDA_ERROR_NO_DEVICE;
    if (engine_forked())
        return CUDA_ERROR_NOT_INITIALIZED;
    call_set_initialised();
    return CUDA_SUCCESS;
}

CUresult do_cuDriverGetVersion(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = config()->driver;
    return CUDA_SUCCESS;
}

CUresult do_cuGetExportTable(const void **table, const CUuuid *id)
{
    (void)id;
    if (table)
        *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

CUresult do_cuDeviceGetCount(int *count)
{
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = config()->devices;
    return CUDA_SUCCESS;
}

CUresult do_cuDeviceGet(CUdevice *device, int ordinal)
{
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_is_valid(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetName(char *name, int length, CUdevice device)
{
    if (!name || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_is_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)length, "Cachalot simulated device (not a GPU)");
    return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_is_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    memcpy(uuid->bytes, "cachalot-sim-dev", sizeof(uuid->bytes));
    uuid->bytes[15] = (char)device;
    return CUDA_SUCCESS;
}

CUresult do_cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_is_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = config()->capacity;
    return CUDA_SUCCESS;
}

static int attribute_value(CUdevice_attribute attribute)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return 9;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
        return 1;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
        return 512;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
        return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        return 1024;
    default:
        return 0;
    }
}

CUresult do_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_is_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute_value(attribute);
    if (attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)
        *value = config()->exports;
    if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
        *value = device + 1;
    return CUDA_SUCCESS;
}

CUresult do_cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_is_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *major = 9;
    *minor = 0;
    return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetPCIBusId(char *text, int length, CUdevice device)
{
    if (!text || length < 13)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_is_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(text, (size_t)length, "0000:%02X:00.0", (unsigned)device + 1);
    return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetByPCIBusId(CUdevice *device, const char *text)
{
    unsigned domain, bus;
    if (!device || !text || sscanf(text, "%x:%x", &domain, &bus) != 2)
        return CUDA_ERROR_INVALID_VALUE;
    if (domain != 0 || !device_is_valid((int)bus - 1))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = (int)bus - 1;
    return CUDA_SUCCESS;
}

CUresult do_cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    if (!can)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_is_valid(device) || !device_is_valid(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer && config()->peers;
    return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice device,
                                    CUdevice peer)
{
    (void)attribute;
    return do_cuDeviceCanAccessPeer(value, device, peer);
}
