/* There is a tool in the program: called back by CUPTI as one of the driver's functions is entered
 * or left, it uses the driver itself. What the program is answered is printed, then what the tool
 * was: each code once, as how often it is called differs with us in front.
 * usage: called_back FUNCTION enter|leave; `*` is every function, without _v2 and the like */
#include <cuda.h>
#include <cupti.h>
#include <stdatomic.h>
#include <string.h>

#include "../preload/case.h"

#define WORDS 65536u
#define CODES 1000      /* the driver's are below */
#define MOST_TIMES 3000 /* a tool that creates a context each time is slow */

enum use { RETAIN, PUSH, INFO, ALLOC, SET, FREE, CURRENT, POP, RELEASE, USES };

static const char *const use_names[USES] = {"retain", "push",    "info", "alloc",  "set",
                                            "free",   "current", "pop",  "release"};
static atomic_bool answered[USES][CODES];
static atomic_int acted;
static const char *watched;
static CUpti_ApiCallbackSite site;
static _Thread_local int inside, times;

/* copy(from, to): to[i] = from[i] + 1 */
static const char ptx[] = ".version 6.3\n.target sm_75\n.address_size 64\n"
                          ".visible .entry copy(.param .u64 from, .param .u64 to)\n{\n"
                          ".reg .u64 %f, %o, %i; .reg .u32 %a, %b, %c, %v;\n"
                          "ld.param.u64 %f, [from]; ld.param.u64 %o, [to];\n"
                          "mov.u32 %a, %ctaid.x; mov.u32 %b, %ntid.x; mov.u32 %c, %tid.x;\n"
                          "mad.lo.u32 %c, %a, %b, %c; mul.wide.u32 %i, %c, 4;\n"
                          "add.u64 %f, %f, %i; add.u64 %o, %o, %i;\n"
                          "ld.u32 %v, [%f]; add.u32 %v, %v, 1; st.u32 [%o], %v; ret;\n}\n";

static CUresult tell(enum use use, CUresult code)
{
    atomic_store(&answered[use][(unsigned)code % CODES], 1);
    return code;
}

static void allocate_inside(size_t bytes)
{
    CUdeviceptr block;
    if (tell(ALLOC, cuMemAlloc(&block, bytes)))
        return;
    tell(SET, cuMemsetD8Async(block, 0xAB, bytes, CU_STREAM_PER_THREAD));
    tell(FREE, cuMemFree(block));
}

static void use_the_driver(void)
{
    CUcontext context, current = NULL;
    size_t available, total;
    if (tell(RETAIN, cuDevicePrimaryCtxRetain(&context, 0)))
        return;
    if (!tell(PUSH, cuCtxPushCurrent(context))) {
        tell(INFO, cuMemGetInfo(&available, &total));
        allocate_inside(1000);
        allocate_inside(3 * MIB);
        CUresult code = cuCtxGetCurrent(&current);
        tell(CURRENT, !code && current != context ? CUDA_ERROR_INVALID_CONTEXT : code);
        tell(POP, cuCtxPopCurrent(&current));
    }
    tell(RELEASE, cuDevicePrimaryCtxRelease(0));
}

static int is_watched(const char *function)
{
    size_t length = strlen(watched);
    return strcmp(watched, "*") == 0 ||
           (strncmp(function, watched, length) == 0 && strchr("_", function[length]));
}

static void CUPTIAPI called_back(void *unused, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                 const void *data)
{
    const CUpti_CallbackData *call = data;
    (void)unused, (void)domain, (void)id;
    if (inside || call->callbackSite != site || !is_watched(call->functionName) ||
        times++ >= MOST_TIMES)
        return;
    inside = 1;
    atomic_fetch_add(&acted, 1);
    use_the_driver();
    inside = 0;
}

/* Memory that the program makes and maps itself. */
static void map_own(void)
{
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAccessDesc access = {kind.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    unsigned char byte = 0;
    OK(cuMemAddressReserve(&address, 2 * MIB, 0, 0, 0));
    SAY(cuMemCreate(&handle, 2 * MIB, &kind, 0));
    SAY(cuMemMap(address, 2 * MIB, 0, handle, 0));
    SAY(cuMemSetAccess(address, 2 * MIB, &access, 1));
    SAY(cuMemsetD8(address, 7, 2 * MIB));
    SAY(cuMemcpyDtoH(&byte, address + 2 * MIB - 1, 1));
    SAY(byte);
    SAY(cuMemUnmap(address, 2 * MIB));
    SAY(cuMemRelease(handle));
    OK(cuMemAddressFree(address, 2 * MIB));
}

static unsigned wrong_words(CUdeviceptr block, unsigned right)
{
    static unsigned words[WORDS];
    unsigned wrong = 0;
    SAY(cuMemcpyDtoH(words, block, sizeof(words)));
    for (unsigned i = 0; i < WORDS; i++)
        wrong += words[i] != right;
    return wrong;
}

/* A chain of copies; what it copies from is freed behind each kernel and handed out again. */
static void copy_along(CUfunction copy, CUstream stream, CUdeviceptr small)
{
    CUdeviceptr from, to, large;
    OK(cuMemAlloc(&from, WORDS * 4));
    SAY(cuMemsetD32Async(from, 100, WORDS, stream));
    for (int i = 0; i < 20; i++) {
        OK(cuMemAlloc(&to, WORDS * 4));
        OK(cuMemAlloc(&large, (size_t)(3 + i % 4 * 10) * MIB));
        void *parameters[] = {&from, &to};
        OK(cuLaunchKernel(copy, WORDS / 256, 1, 1, 256, 1, 1, 0, stream, parameters, NULL));
        OK(cuMemsetD8Async(large, 1, 3 * MIB, stream));
        OK(cuMemFree(large));
        OK(cuMemFree(from));
        from = to;
    }
    SAY(cuStreamSynchronize(stream));
    OK(wrong_words(from, 120));
    OK(wrong_words(small, 5));
    SAY(cuMemFree(from));
}

static void work(CUcontext context)
{
    CUmodule module;
    CUfunction copy;
    CUstream stream;
    CUevent event;
    CUdeviceptr small;
    OK(cuModuleLoadData(&module, ptx));
    OK(cuModuleGetFunction(&copy, module, "copy"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    SAY(cuMemAlloc(&small, WORDS * 4));
    SAY(cuMemsetD32(small, 5, WORDS));
    copy_along(copy, stream, small);
    SAY(cuEventRecord(event, stream));
    SAY(cuCtxRecordEvent(context, event));
    SAY(cuEventSynchronize(event));
    map_own();
    SAY(cuStreamSynchronize(stream));
    SAY(cuStreamDestroy(stream));
    SAY(cuMemFree(small));
}

int main(int count, char **argument)
{
    CUpti_SubscriberHandle subscriber;
    CHECK(count == 3);
    watched = argument[1];
    site = strcmp(argument[2], "enter") == 0 ? CUPTI_API_ENTER : CUPTI_API_EXIT;
    OK(cuptiSubscribe(&subscriber, called_back, NULL));
    OK(cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API));
    OK(cuInit(0));
    for (int round = 0; round < 3; round++) {
        CUcontext context;
        CUdeviceptr late;
        OK(cuDevicePrimaryCtxRetain(&context, 0));
        OK(cuCtxSetCurrent(context));
        work(context);
        SAY(round == 0 ? cuDevicePrimaryCtxReset(0) : cuDevicePrimaryCtxRelease(0));
        SAY(cuMemAlloc(&late, 100));
    }
    printf("acted %d\n", atomic_load(&acted));
    for (int use = 0; use < USES; use++)
        for (int code = 0; code < CODES; code++)
            if (atomic_load(&answered[use][code]))
                printf("inside %s: %d\n", use_names[use], code);
    return 0;
}
