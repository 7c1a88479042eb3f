/*
 * Look-ups answer as the driver's: the addresses of dlsym, versions, twins, what is not there.
 */
#include "test_case.h"

#include <dlfcn.h>
#include <string.h>

#define TWIN CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM

static void *symbol(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

static void *look_up(const char *name, int version, cuuint64_t flags)
{
    void *address = (void *)1;
    CUdriverProcAddressQueryResult status;
    CUresult result = cuGetProcAddress(name, &address, version, flags, &status);
    CHECK((result == CUDA_SUCCESS) == (status == CU_GET_PROC_ADDRESS_SUCCESS));
    CHECK((result == CUDA_SUCCESS) == (address != NULL));
    return address;
}

static void addresses_are_dlsyms(void)
{
    CHECK(symbol("cuMemAlloc_v2") && symbol("cuMemAlloc"));
    CHECK(symbol("cuMemAlloc_v2") != symbol("cuMemAlloc"));
    CHECK(look_up("cuMemAlloc", 3020, 0) == symbol("cuMemAlloc_v2"));
    CHECK(look_up("cuMemAlloc", 13000, 0) == symbol("cuMemAlloc_v2"));
    CHECK(look_up("cuMemAlloc", 13000, TWIN) == symbol("cuMemAlloc_v2"));
    CHECK(look_up("cuMemAlloc", 3010, 0) == symbol("cuMemAlloc"));
    CHECK(look_up("cuInit", 2000, 0) == symbol("cuInit"));
    CHECK(look_up("cuGetProcAddress", 11030, 0) == symbol("cuGetProcAddress"));
    CHECK(look_up("cuGetProcAddress", 12000, 0) == symbol("cuGetProcAddress_v2"));
    CHECK(look_up("cuStreamGetCaptureInfo", 11030, 0) == symbol("cuStreamGetCaptureInfo_v2"));
    CHECK(look_up("cuStreamGetCaptureInfo", 12030, 0) == symbol("cuStreamGetCaptureInfo_v3"));
    CHECK(look_up("cuCtxCreate", 12050, 0) == symbol("cuCtxCreate_v4"));
    CHECK(look_up("cuMemcpyHtoD", 13000, TWIN) == symbol("cuMemcpyHtoD_v2_ptds"));
    CHECK(look_up("cuLaunchKernel", 13000, TWIN) == symbol("cuLaunchKernel_ptsz"));
    CHECK(look_up("cuMemcpyHtoD", 13000, 0) == symbol("cuMemcpyHtoD_v2"));
    CHECK(symbol("cuMemcpyHtoD_v2") != symbol("cuMemcpyHtoD_v2_ptds"));
}

static void unknown_names_are_not_found(void)
{
    void *address = (void *)1;
    GIVES(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("", &address, 13000, 0, NULL));
    CHECK(address == NULL);
    CHECK(look_up("cuMemAllok", 13000, 0) == NULL);
    CHECK(look_up("cuCtxRecordEvent", 12040, 0) == NULL);
    CHECK(look_up("cuCtxRecordEvent", 12050, 0) == symbol("cuCtxRecordEvent"));
}

static void old_drivers_are_old(void)
{
    int version;
    CUevent event;
    OK(cuDriverGetVersion(&version));
    GIVES(12040, version);
    begin();
    OK(cuEventCreate(&event, 0));
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuCtxRecordEvent(context, event));
    CHECK(look_up("cuCtxRecordEvent", 13000, 0) == NULL);
    CHECK(look_up("cuMemAlloc", 13000, 0) == symbol("cuMemAlloc_v2"));
}

static void leftovers_do_nothing(void)
{
    unsigned bytes = 0;
    void *address = symbol("cuMemAlloc");
    CUresult (*old)(unsigned *, unsigned);
    memcpy(&old, &address, sizeof(old));
    begin();
    GIVES(CUDA_ERROR_NOT_SUPPORTED, old(&bytes, 16));
}

static void twins_take_the_threads_stream(void)
{
    CUresult (*set)(CUdeviceptr, unsigned char, size_t, CUstream);
    void *address = symbol("cuMemsetD8Async_ptsz");
    memcpy(&set, &address, sizeof(set));
    begin();
    OK(set(memory, 1, 1, NULL));
    OK(cuMemsetD8Async(memory, 1, 1, CU_STREAM_PER_THREAD));
    OK(cuMemsetD8Async(memory, 1, 1, NULL));
    OK(set(memory, 1, 1, NULL));
    /* Natively ordered with the legacy stream, were it that. */
    OK(cuMemsetD8Async(memory, 1, 1, blocking));
}

static int launches_seen;

/* In front of the simulated driver, as a preload would be. */
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CUstream stream,
                        void **parameters, void **extra)
{
    void *address = dlsym(RTLD_NEXT, "cuLaunchKernel");
    __typeof__(cuLaunchKernel) *next;
    memcpy(&next, &address, sizeof(next));
    launches_seen++;
    return next(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}

static void launches_can_be_interposed(void)
{
    begin();
    launch(a, 1000, NULL);
    GIVES(1, launches_seen);
    GIVES(1, cachalot_sim_calls("cuLaunchKernel"));
}

static void own_calls_cannot_be_interposed(void)
{
    CHECK(look_up("cuLaunchKernel", 13000, 0) != (void *)(uintptr_t)cuLaunchKernel);
}

static void device_says_what_it_is(void)
{
    char name[64];
    int count;
    CUuuid first, second;
    begin();
    OK(cuDeviceGetCount(&count));
    GIVES(3, count);
    OK(cuDeviceGetName(name, sizeof(name), 0));
    CHECK(strcmp(name, "Cachalot simulated device (not a GPU)") == 0);
    OK(cuDeviceGetUuid(&first, 0));
    OK(cuDeviceGetUuid(&second, 2));
    CHECK(memcmp(&first, &second, sizeof(first)) != 0);
    GIVES(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetUuid(&first, 3));
}

static const struct test_case cases[] = {
    {"addresses are dlsym's", addresses_are_dlsyms, NULL, NULL},
    {"unknown names are not found", unknown_names_are_not_found, NULL, NULL},
    {"old drivers are old", old_drivers_are_old, "CACHALOT_SIM_DRIVER=12040", NULL},
    {"leftovers do nothing", leftovers_do_nothing, NULL, NULL},
    {"twins take the thread's stream", twins_take_the_threads_stream, MANUAL,
     "unordered|blocking stream"},
    {"launches can be interposed", launches_can_be_interposed, MANUAL, NULL},
    {"own calls cannot be interposed", own_calls_cannot_be_interposed, NULL, NULL},
    {"device says what it is", device_says_what_it_is, "CACHALOT_SIM_DEVICES=3", NULL},
};

int main(void)
{
    return test_run(cases, sizeof(cases) / sizeof(cases[0]));
}
