/* The driver API with a kernel, to be run under compute-sanitizer: blocks of odd sizes are filled
 * by the kernel up to their last word, checked and freed, so that a block handed out wrongly is an
 * access out of bounds or a bad word. */
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define SLOTS 16
#define ROUNDS 400

/* fill(pointer, words, value): p[i] = value + i */
static const char kernel[] =
    ".version 7.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .entry fill(.param .u64 pointer, .param .u64 words, .param .u32 value)\n"
    "{\n"
    "    .reg .pred %p<2>;\n"
    "    .reg .b32 %r<7>;\n"
    "    .reg .b64 %d<8>;\n"
    "    ld.param.u64 %d1, [pointer];\n"
    "    ld.param.u64 %d2, [words];\n"
    "    ld.param.u32 %r1, [value];\n"
    "    cvta.to.global.u64 %d3, %d1;\n"
    "    mov.u32 %r2, %ctaid.x;\n"
    "    mov.u32 %r3, %ntid.x;\n"
    "    mov.u32 %r4, %tid.x;\n"
    "    mad.lo.s32 %r5, %r2, %r3, %r4;\n"
    "    cvt.u64.u32 %d4, %r5;\n"
    "    setp.ge.u64 %p1, %d4, %d2;\n"
    "    @%p1 bra DONE;\n"
    "    shl.b64 %d5, %d4, 2;\n"
    "    add.s64 %d6, %d3, %d5;\n"
    "    add.s32 %r6, %r1, %r5;\n"
    "    st.global.u32 [%d6], %r6;\n"
    "DONE:\n"
    "    ret;\n"
    "}\n";

static void must(CUresult result, const char *what)
{
    const char *name = NULL;
    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorName(result, &name);
    printf("%s: %s\n", what, name ? name : "?");
    exit(1);
}

static CUfunction start(CUcontext *context)
{
    CUdevice device;
    CUmodule module;
    CUfunction fill;
    must(cuInit(0), "cuInit");
    must(cuDeviceGet(&device, 0), "cuDeviceGet");
    must(cuDevicePrimaryCtxRetain(context, device), "cuDevicePrimaryCtxRetain");
    must(cuCtxSetCurrent(*context), "cuCtxSetCurrent");
    must(cuModuleLoadData(&module, kernel), "cuModuleLoadData");
    must(cuModuleGetFunction(&fill, module, "fill"), "cuModuleGetFunction");
    return fill;
}

/* Words that are not what the kernel wrote, first and last. */
static unsigned bad_words(CUdeviceptr pointer, uint64_t words, uint32_t value)
{
    uint32_t first = 0, last = 0;
    must(cuMemcpyDtoH(&first, pointer, sizeof first), "cuMemcpyDtoH");
    must(cuMemcpyDtoH(&last, pointer + (words - 1) * sizeof last, sizeof last), "cuMemcpyDtoH");
    return (first != value) + (last != value + (uint32_t)(words - 1));
}

int main(void)
{
    CUcontext context;
    CUdeviceptr pointer[SLOTS] = {0};
    uint64_t words[SLOTS] = {0}, seed = 1, requested = 0;
    unsigned bad = 0;
    CUfunction fill = start(&context);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t slot = (seed >> 33) % SLOTS;
        if (pointer[slot]) {
            bad += bad_words(pointer[slot], words[slot], (uint32_t)words[slot]);
            must(cuMemFree(pointer[slot]), "cuMemFree");
        }
        words[slot] = 1 + (seed >> 40) % (i % 20 ? 30000 : 2000000);
        requested += words[slot] * 4;
        must(cuMemAlloc(&pointer[slot], words[slot] * 4), "cuMemAlloc");
        uint32_t value = (uint32_t)words[slot];
        void *arguments[] = {&pointer[slot], &words[slot], &value};
        must(cuLaunchKernel(fill, (unsigned)((words[slot] + 255) / 256), 1, 1, 256, 1, 1, 0, NULL,
                            arguments, NULL),
             "cuLaunchKernel");
    }
    for (int slot = 0; slot < SLOTS; slot++)
        if (pointer[slot])
            must(cuMemFree(pointer[slot]), "cuMemFree");
    must(cuCtxSynchronize(), "cuCtxSynchronize");
    printf("mallocs %d requested %llu bad %u\n", ROUNDS, (unsigned long long)requested, bad);
    return bad != 0;
}
