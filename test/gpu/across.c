/* Copies across two devices that nobody gave access to each other: natively all memory of cudaMalloc
 * takes part. (A set of the other device's memory is refused natively, as a kernel's store is; of
 * mapped memory it works.) First with memory that was there before the second device was used, then
 * with some that came later; each result is read back on the device it lies on. */
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

#define BYTES ((size_t)4 << 20)

static unsigned char wanted[BYTES], found[BYTES];
static void *first, *second; /* on device 0 and 1 */

static int fill(void *block, int device, int value)
{
    return cudaSetDevice(device) || cudaMemset(block, value, BYTES) || cudaDeviceSynchronize();
}

/* Device 1 is current. Each leaves `second` or `first` as `wanted` is. */
static int operate(int number)
{
    cudaStream_t stream;
    int code;
    switch (number) {
    case 0:
        return cudaMemcpy(second, first, BYTES, cudaMemcpyDeviceToDevice);
    case 1:
        return cudaMemcpy(second, first, BYTES, cudaMemcpyDefault);
    case 2:
        return cudaMemcpyPeer(second, 1, first, 0, BYTES);
    case 3:
        return cudaMemcpy2D(second, 1024, first, 1024, 1024, BYTES / 1024, cudaMemcpyDefault);
    case 4:
        return cudaSetDevice(0) || cudaStreamCreate(&stream) ||
               (code = cudaMemcpyAsync(second, first, BYTES, cudaMemcpyDefault, stream)) ||
               cudaStreamSynchronize(stream) || cudaStreamDestroy(stream);
    case 5:
        return cudaMemcpy(first, wanted, BYTES, cudaMemcpyHostToDevice);
    case 6:
        return cudaMemcpyAsync(first, wanted, BYTES, cudaMemcpyDefault, 0);
    case 7:
        return cudaMemcpy2D(first, 1024, wanted, 1024, 1024, BYTES / 1024, cudaMemcpyHostToDevice);
    default:
        return cudaMemcpy(found, first, BYTES, cudaMemcpyDeviceToHost) ||
               memcmp(found, wanted, BYTES);
    }
}

static void round_of(const char *name)
{
    for (int number = 0; number < 9; number++) {
        int to_second = number < 5, all = 17 * number + 3;
        int ready = fill(first, 0, to_second || number == 8 ? all : 0) || fill(second, 1, 0);
        memset(wanted, all, BYTES);
        int code = ready ? -1 : operate(number), done = cudaDeviceSynchronize();
        cudaSetDevice(to_second);
        int read = cudaMemcpy(found, to_second ? second : first, BYTES, cudaMemcpyDeviceToHost);
        printf("%s, %d: %d %d %d, %s\n", name, number, code, done, read,
               memcmp(found, wanted, BYTES) ? "WRONG" : "right");
    }
}

static int take(int device, void **block)
{
    return cudaSetDevice(device) || cudaMalloc(block, BYTES);
}

int main(void)
{
    void *more;
    if (take(0, &first) || take(1, &second))
        return 2;
    round_of("before");
    if (take(0, &more) || take(0, &first) || take(1, &second) || cudaSetDevice(0) ||
        cudaFree(more) || cudaMalloc(&more, 64 * BYTES))
        return 2;
    first = more;
    round_of("later");
    return 0;
}
