/* Registers blocks by page, as libraries of network cards do: a descriptor of a dma-buf for all pages
 * of each block, and what the attributes say. */
#include <sys/stat.h>

#include "driver_case.h"

#define PAGE 4096

static void show(CUdeviceptr block, size_t bytes)
{
    struct stat stat;
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens;
    CUdeviceptr start = 0;
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    unsigned sync = 7;
    int fd = -1;
    SAY(cuMemGetHandleForAddressRange(&fd, block, whole, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    CHECK(fd >= 0 && !fstat(fd, &stat) && stat.st_size == (off_t)whole);
    close(fd);
    SAY(cuMemGetHandleForAddressRange(&fd, block + PAGE, PAGE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                      0));
    close(fd);
    SAY(cuMemGetHandleForAddressRange(&fd, block + 512, PAGE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                      0));
    SAY(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, block + PAGE));
    SAY(start - block);
    SAY(cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
    SAY(sync);
    SAY(cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, block));
    SAY(cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
    SAY(sync);
}

int main(void)
{
    static const size_t sizes[] = {MIB, MIB + 512, 3 * MIB, 5 * MIB + 1536, 64 * MIB, 20 * MIB + 1};
    enum { N = sizeof sizes / sizeof *sizes };
    CUdeviceptr block[N];
    unsigned sync = 7;
    begin();
    make(700);
    make(700 << 9);
    for (int i = 0; i < N; i++)
        block[i] = make(sizes[i]);
    for (int i = 0; i < N; i++)
        show(block[i], sizes[i]);
    for (int i = 0; i < N; i++)
        OK(cuMemFree(block[i]));
    OK(cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, make(64 * MIB)));
    SAY(sync); /* no later block has it */
    return 0;
}
