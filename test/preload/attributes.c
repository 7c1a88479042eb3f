/* What the driver says of allocations: the same, whatever memory they lie in. */
#include "driver_case.h"

static unsigned long long number(CUpointer_attribute attribute, CUdeviceptr at)
{
    unsigned long long value = 0;
    OK(cuPointerGetAttribute(&value, attribute, at));
    return value;
}

/* In one call, with others between. */
static void together(CUdeviceptr block, CUdeviceptr at)
{
    CUcontext context = NULL, current;
    CUmemorytype type = 0;
    CUdeviceptr begin = 0;
    size_t bytes = 0;
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *data[] = {&type, &context, &begin, &bytes};
    OK(cuCtxGetCurrent(&current));
    OK(cuPointerGetAttributes(4, asked, data, at));
    SAY(type);
    SAY(context == current);
    SAY(begin - block);
    SAY(bytes);
}

/* Functions of 13.1 to 13.4, which older headers do not declare. */
static void bind_newer(CUdeviceptr at)
{
    CUresult (*multicast)(CUmemGenericAllocationHandle, CUdevice, size_t, CUdeviceptr, size_t,
                          unsigned long long);
    CUresult (*endpoint)(unsigned, CUdevice, unsigned long long, void *, unsigned long long,
                         unsigned long long);
    CUresult (*where)(CUdeviceptr, size_t, size_t, size_t, CUmemLocation *);
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUdriverProcAddressQueryResult found;
    if (cuGetProcAddress("cuMemGetLocationInfo", (void **)&where, 13040, 0, &found))
        return;
    OK(cuGetProcAddress("cuMulticastBindAddr", (void **)&multicast, 13010, 0, &found));
    OK(cuGetProcAddress("cuLogicalEndpointBindAddr", (void **)&endpoint, 13030, 0, &found));
    SAY(multicast(0, 0, 0, at, 100, 0));
    SAY(endpoint(0, 0, 0, (void *)at, 100, 0));
    SAY(where(at, 100, 100, 0, &location));
}

/* What only memory of cuMemCreate can have done to it. */
static void take_for_mapped(CUdeviceptr at)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    unsigned long long flags = 99;
    SAY(cuMemGetAccess(&flags, &access.location, at));
    SAY(flags);
    SAY(cuMemSetAccess(at, 2 * MIB, &access, 1));
    SAY(cuMemUnmap(at, 2 * MIB));
    CUdeviceptr device;
    unsigned int word;
    SAY(cuMulticastBindAddr(0, 0, at, 100, 0));
    SAY(cuMemHostGetDevicePointer(&device, (void *)at, 0));
    SAY(cuMemHostGetFlags(&word, (void *)at));
    bind_newer(at);
}

static void show(CUdeviceptr block, size_t offset)
{
    CUdeviceptr at = block + offset, base = 0;
    CUmemGenericAllocationHandle handle;
    size_t bytes = 0;
    OK(cuMemGetAddressRange(&base, &bytes, at));
    SAY(base - block);
    SAY(bytes);
    SAY(number(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at) - block);
    SAY(number(CU_POINTER_ATTRIBUTE_RANGE_SIZE, at));
    SAY(number(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, at));
    SAY(number(CU_POINTER_ATTRIBUTE_MAPPED, at));
    SAY(number(CU_POINTER_ATTRIBUTE_BUFFER_ID, at) ==
        number(CU_POINTER_ATTRIBUTE_BUFFER_ID, block));
    SAY(cuMemRetainAllocationHandle(&handle, (void *)at));
    take_for_mapped(at);
    OK(cuMemsetD8(at, 1, 100));
    together(block, at);
}

/* What nobody has. */
static void show_freed(CUdeviceptr at)
{
    void *host = NULL;
    unsigned long long value = 0;
    CUmemorytype type = 0;
    CUpointer_attribute asked = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    void *data = &type;
    CUdeviceptr base = 0;
    CUmemGenericAllocationHandle handle;
    SAY(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
    SAY(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_BUFFER_ID, at));
    SAY(cuPointerGetAttributes(1, &asked, &data, at));
    asked = CU_POINTER_ATTRIBUTE_HOST_POINTER;
    data = &host;
    OK(cuPointerGetAttributes(1, &asked, &data, at));
    SAY(host == (void *)at);
    SAY(type);
    SAY(cuMemGetAddressRange(&base, NULL, at));
    SAY(cuMemRetainAllocationHandle(&handle, (void *)at));
    take_for_mapped(at);
}

int main(void)
{
    begin();
    CUdeviceptr first = make(5 * MIB), second = make(21 * MIB + 100), third = make(3 * MIB);
    show(first, 0);
    show(second, 0);
    show(second, 20 * MIB + 512 * KIB);
    show(third, 2 * MIB);
    unsigned long long was = number(CU_POINTER_ATTRIBUTE_BUFFER_ID, second);
    unsigned long long block = number(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, second);
    SAY(was == number(CU_POINTER_ATTRIBUTE_BUFFER_ID, third));
    SAY(block == number(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, third));
    OK(cuMemFree(second));
    second = make(21 * MIB + 100);
    SAY(was == number(CU_POINTER_ATTRIBUTE_BUFFER_ID, second));
    CUdeviceptr small = make(700), held = make(700);
    OK(cuMemFree(second));
    OK(cuMemFree(small));
    show_freed(second);
    show_freed(second + 20 * MIB);
    show_freed(small);
    SAY(number(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, held));
    return 0;
}
