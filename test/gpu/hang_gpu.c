/* The kernels of hang.c on a GPU: PTX that the driver compiles. */
#include "../preload/case.h"
#include "hang_device.h"

static CUfunction spin_kernel, feed_kernel, write_kernel;

static const char ptx[] =
    ".version 6.3\n.target sm_75\n.address_size 64\n"
    ".visible .entry spin(.param .u64 flag, .param .u64 block)\n{\n"
    ".reg .u64 %f, %b; .reg .u32 %v; .reg .pred %p;\n"
    "ld.param.u64 %f, [flag]; ld.param.u64 %b, [block];\n"
    "again: ld.volatile.u32 %v, [%f]; setp.eq.u32 %p, %v, 0; @%p bra again;\n"
    "st.volatile.u32 [%b], %v; ret;\n}\n"
    ".visible .entry feed(.param .u64 flag)\n{\n"
    ".reg .u64 %f; .reg .u32 %v;\n"
    "ld.param.u64 %f, [flag]; mov.u32 %v, 1; st.volatile.u32 [%f], %v; membar.sys; ret;\n}\n"
    ".visible .entry write(.param .u64 block, .param .u64 bytes, .param .u64 ns)\n{\n"
    ".reg .u64 %b, %e, %n, %t, %s; .reg .u32 %v; .reg .pred %p;\n"
    "ld.param.u64 %b, [block]; ld.param.u64 %e, [bytes]; ld.param.u64 %n, [ns];\n"
    "add.u64 %e, %e, %b; mov.u32 %v, 7; mov.u64 %s, %globaltimer;\n"
    "more: st.volatile.u32 [%b], %v; add.u64 %b, %b, 4096; setp.lt.u64 %p, %b, %e; @%p bra more;\n"
    "hold: mov.u64 %t, %globaltimer; sub.u64 %t, %t, %s; setp.lt.u64 %p, %t, %n; @%p bra hold;\n"
    "ret;\n}\n";

void device_begin(void)
{
    CUmodule module;
    OK(cuModuleLoadData(&module, ptx));
    OK(cuModuleGetFunction(&spin_kernel, module, "spin"));
    OK(cuModuleGetFunction(&feed_kernel, module, "feed"));
    OK(cuModuleGetFunction(&write_kernel, module, "write"));
}

volatile int *device_flag(void)
{
    void *flag;
    OK(cuMemHostAlloc(&flag, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    return flag; /* the same address on the device: unified addressing */
}

static CUresult launch(CUfunction function, CUstream stream, void **parameters)
{
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

CUresult device_spin(CUstream stream, const volatile int *flag, CUdeviceptr block, size_t bytes)
{
    void *parameters[] = {&flag, &block};
    (void)bytes;
    return launch(spin_kernel, stream, parameters);
}

CUresult device_feed(CUstream stream, volatile int *flag)
{
    void *parameters[] = {&flag};
    return launch(feed_kernel, stream, parameters);
}

CUresult device_write(CUstream stream, unsigned ns, CUdeviceptr block, size_t bytes)
{
    unsigned long long size = bytes, nanoseconds = ns;
    void *parameters[] = {&block, &size, &nanoseconds};
    return launch(write_kernel, stream, parameters);
}
