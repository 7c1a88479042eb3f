/* Writes down what the GPU really ran, and which call brought it, as CUPTI records it: a line for
 * each kernel, copy, set and call. The driver loads it (CUDA_INJECTION64_PATH); the lines go to
 * $CACHALOT_CUPTI.PID; coverage.py compares them with our report.
 *     G class correlation graph name     what ran: kernels, copies, sets; graph 0: in none
 *     A domain thread begin end correlation code name     a call: driver, runtime, internal
 *     P domain name     a launch that need not wait for what is before it on its stream */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cupti.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER ((size_t)4 << 20)
#define NAMES 2048

static FILE *lines;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char
    *names[2][NAMES]; /* of the driver's and the runtime's calls; "" if of no interest */
static CUpti_SubscriberHandle subscriber;

int InitializeInjection(void);

static void say(const char *what, CUptiResult result)
{
    const char *text = "?";
    if (result == CUPTI_SUCCESS)
        return;
    cuptiGetResultString(result, &text);
    fprintf(lines, "E %s: %s\n", what, text);
}

static int carries_work(const char *name)
{
    static const char *const parts[] = {"Launch",    "emcpy",    "emset",      "Prefetch",
                                        "WaitValue", "WriteVal", "BatchMemOp", "AddCallba",
                                        "Batch",     "MapArray"};
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        if (strstr(name, parts[i]))
            return 1;
    return 0;
}

/* The call's name if it may carry work, else "". */
static const char *name_of(int runtime, CUpti_CallbackId id)
{
    const char *name = "";
    if (id >= NAMES)
        return "unknown";
    if (!names[runtime][id]) {
        CUpti_CallbackDomain domain =
            runtime ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API;
        if (cuptiGetCallbackName(domain, id, &name) != CUPTI_SUCCESS)
            name = "unknown";
        names[runtime][id] = carries_work(name) ? name : "";
    }
    return names[runtime][id];
}

static void write_call(const CUpti_ActivityAPI *call)
{
    const char *domain = call->kind == CUPTI_ACTIVITY_KIND_RUNTIME  ? "runtime"
                         : call->kind == CUPTI_ACTIVITY_KIND_DRIVER ? "driver"
                                                                    : "internal";
    const char *name = call->kind == CUPTI_ACTIVITY_KIND_RUNTIME  ? name_of(1, call->cbid)
                       : call->kind == CUPTI_ACTIVITY_KIND_DRIVER ? name_of(0, call->cbid)
                                                                  : "internal";
    if (*name)
        fprintf(lines, "A %s %u %llu %llu %u %u %s\n", domain, call->threadId,
                (unsigned long long)call->start, (unsigned long long)call->end, call->correlationId,
                call->returnValue, name);
}

static void write_record(const CUpti_Activity *record)
{
    const CUpti_ActivityKernel10 *kernel = (const void *)record;
    const CUpti_ActivityMemcpy6 *copy = (const void *)record;
    const CUpti_ActivityMemcpyPtoP4 *peer = (const void *)record;
    const CUpti_ActivityMemset4 *set = (const void *)record;
    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        fprintf(lines, "G kernels %u %u %.200s\n", kernel->correlationId, kernel->graphId,
                kernel->name ? kernel->name : "?");
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        fprintf(lines, "G copies %u %u kind-%d-%llu-bytes\n", copy->correlationId, copy->graphId,
                copy->copyKind, (unsigned long long)copy->bytes);
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
        fprintf(lines, "G copies %u %u peer-%llu-bytes\n", peer->correlationId, peer->graphId,
                (unsigned long long)peer->bytes);
        break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
        fprintf(lines, "G sets %u %u %llu-bytes\n", set->correlationId, set->graphId,
                (unsigned long long)set->bytes);
        break;
    case CUPTI_ACTIVITY_KIND_DRIVER:
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_INTERNAL_LAUNCH_API:
        write_call((const void *)record);
        break;
    default:
        break;
    }
}

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *most)
{
    *size = BUFFER;
    *most = 0;
    *buffer = aligned_alloc(8, BUFFER);
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                                 size_t valid)
{
    CUpti_Activity *record = NULL;
    size_t dropped = 0;
    (void)size;
    pthread_mutex_lock(&lock);
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
        write_record(record);
    cuptiActivityGetNumDroppedRecords(context, stream, &dropped);
    if (dropped)
        fprintf(lines, "E %zu records dropped\n", dropped);
    pthread_mutex_unlock(&lock);
    free(buffer);
}

/* Launches with attributes: is it programmatic? The runtime's attributes are the driver's. */
static void CUPTIAPI launched(void *unused, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                              const void *data)
{
    const CUpti_CallbackData *call = data;
    const cuLaunchKernelEx_params *of_driver = call->functionParams;
    const cudaLaunchKernelExC_v11060_params *of_runtime = call->functionParams;
    (void)unused, (void)id;
    if (call->callbackSite != CUPTI_API_ENTER)
        return;
    int driver = domain == CUPTI_CB_DOMAIN_DRIVER_API, programmatic = 0;
    for (unsigned i = 0; driver && i < of_driver->config->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &of_driver->config->attrs[i];
        programmatic |= attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
                        (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
                         attribute->value.programmaticStreamSerializationAllowed);
    }
    for (unsigned i = 0; !driver && i < of_runtime->config->numAttrs; i++) {
        const cudaLaunchAttribute *attribute = &of_runtime->config->attrs[i];
        programmatic |= attribute->id == cudaLaunchAttributeProgrammaticEvent ||
                        (attribute->id == cudaLaunchAttributeProgrammaticStreamSerialization &&
                         attribute->val.programmaticStreamSerializationAllowed);
    }
    if (!programmatic)
        return;
    pthread_mutex_lock(&lock);
    fprintf(lines, "P %s %.200s\n", driver ? "driver" : "runtime",
            call->symbolName ? call->symbolName : "?");
    pthread_mutex_unlock(&lock);
}

static void finish(void)
{
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    pthread_mutex_lock(&lock);
    fflush(lines);
    pthread_mutex_unlock(&lock);
}

static void watch_launches(void)
{
    static const struct {
        CUpti_CallbackDomain domain;
        CUpti_CallbackId id;
    } calls[] = {
        {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx},
        {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz},
        {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060},
        {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_ptsz_v11060}};
    say("cuptiSubscribe", cuptiSubscribe(&subscriber, launched, NULL));
    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
        say("cuptiEnableCallback",
            cuptiEnableCallback(1, subscriber, calls[i].domain, calls[i].id));
}

/* The driver calls it when it is initialised. */
int InitializeInjection(void)
{
    static const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                               CUPTI_ACTIVITY_KIND_MEMCPY,
                                               CUPTI_ACTIVITY_KIND_MEMCPY2,
                                               CUPTI_ACTIVITY_KIND_MEMSET,
                                               CUPTI_ACTIVITY_KIND_DRIVER,
                                               CUPTI_ACTIVITY_KIND_RUNTIME,
                                               CUPTI_ACTIVITY_KIND_INTERNAL_LAUNCH_API};
    char path[4096];
    const char *place = getenv("CACHALOT_CUPTI");
    if (lines || !place)
        return 1;
    snprintf(path, sizeof(path), "%s.%d", place, (int)getpid());
    lines = fopen(path, "w");
    if (!lines)
        return 0;
    say("cuptiActivityRegisterCallbacks", cuptiActivityRegisterCallbacks(give_buffer, take_buffer));
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        say("cuptiActivityEnable", cuptiActivityEnable(kinds[i]));
    watch_launches();
    atexit(finish);
    return 1;
}
