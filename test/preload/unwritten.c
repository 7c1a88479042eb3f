/* What is in memory that a program gets: shown, or read before it is written (reads), or not (writes).
 * Blocks are used, freed and taken again on several streams, so that a fill which is not ordered
 * before or behind their work meets it. */
#include "driver_case.h"

#define STREAMS 3
#define ROUNDS 6
#define SIZE (3 * MIB + 2)

static void *host;

static unsigned first_of(CUdeviceptr pointer)
{
    unsigned word = 0;
    OK(cuMemcpyDtoH(&word, pointer, sizeof word));
    return word;
}

static void use_on_all(CUstream *stream)
{
    for (int round = 0; round < ROUNDS; round++) {
        CUdeviceptr block[STREAMS];
        for (int i = 0; i < STREAMS; i++) {
            block[i] = make(i % 2 ? 4 * KIB : SIZE);
            write_all(stream[(i + round) % STREAMS], 20000, block[i], 4 * KIB);
        }
        for (int i = 0; i < STREAMS; i++)
            OK(cuMemFree(block[i]));
    }
}

static void show(CUstream stream)
{
    CUdeviceptr block = make(SIZE), pooled;
    unsigned char end[2], word[4];
    OK(cuMemcpyDtoH(end, block + SIZE - 2, 2));
    OK(cuMemAllocAsync(&pooled, MIB, stream));
    OK(cuMemcpyDtoHAsync(word, pooled, 4, stream));
    OK(cuStreamSynchronize(stream));
    printf("%08x %02x %02x%02x%02x%02x %08x\n", first_of(block), end[1], word[3], word[2], word[1],
           word[0], *(unsigned *)host);
    OK(cuMemFreeAsync(pooled, stream));
    OK(cuMemFree(block));
}

int main(int count, char **argument)
{
    CUstream stream[STREAMS];
    CHECK(count == 2);
    begin();
    for (int i = 0; i < STREAMS; i++)
        OK(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
    OK(cuMemHostAlloc(&host, MIB, 0));
    use_on_all(stream);
    if (!strcmp(argument[1], "show"))
        show(stream[1]);
    CUdeviceptr block = make(4 * KIB);
    if (strcmp(argument[1], "reads"))
        OK(cuMemsetD8(block, 7, 4 * KIB));
    printf("%d\n", first_of(block) == 0x07070707);
    if (!strcmp(argument[1], "reads") && first_of(block))
        printf("something\n");
    if (!strcmp(argument[1], "random"))
        printf("%d\n", (int)getpid());
    OK(cuMemFree(block));
    return 0;
}
