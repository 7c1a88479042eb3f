/* An ordinary CUDA program that allocates like a small training loop: parameters that stay,
 * activations and gradients that come and go with every step, batches of changing size. It checks
 * what it reads back. `train_loop [STEPS]` */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#define LAYERS 6
#define WIDTH 1024
#define MOST_BATCH 128

static const size_t layer_floats = (size_t)WIDTH * WIDTH + WIDTH;

struct training {
    cudaStream_t stream;
    cudaEvent_t done;
    void *parameters[LAYERS], *momentum[LAYERS];
    unsigned char *host;
    size_t bytes_checked;
};

static void check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "train_loop: %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

static void *take(size_t bytes)
{
    void *memory;
    check(cudaMalloc(&memory, bytes), "cudaMalloc");
    return memory;
}

static void give(void *memory)
{
    check(cudaFree(memory), "cudaFree");
}

/* Is every byte of `memory` still the one that was put there? */
static void verify(struct training *t, const void *memory, size_t bytes, int value)
{
    check(cudaMemcpyAsync(t->host, memory, bytes, cudaMemcpyDeviceToHost, t->stream), "copy back");
    check(cudaStreamSynchronize(t->stream), "synchronise");
    for (size_t i = 0; i < bytes; i++)
        if (t->host[i] != (unsigned char)value) {
            fprintf(stderr, "train_loop: byte %zu is %d, not %d: memory was handed out twice\n", i,
                    t->host[i], value);
            exit(1);
        }
    t->bytes_checked += bytes;
}

static void begin(struct training *t)
{
    check(cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaEventCreateWithFlags(&t->done, cudaEventDisableTiming), "cudaEventCreate");
    for (int i = 0; i < LAYERS; i++) {
        t->parameters[i] = take(layer_floats * sizeof(float));
        t->momentum[i] = take(layer_floats * sizeof(float));
        check(cudaMemsetAsync(t->parameters[i], i + 1, layer_floats * sizeof(float), t->stream),
              "cudaMemsetAsync");
        check(cudaMemsetAsync(t->momentum[i], 0, layer_floats * sizeof(float), t->stream),
              "cudaMemsetAsync");
    }
    t->host = malloc(layer_floats * sizeof(float));
    if (!t->host)
        exit(1);
}

/* Forward: an activation per layer. Backward: a gradient per layer, and what is no longer needed is
 * freed while the device may still be at it. */
static void step(struct training *t, int number)
{
    size_t batch = 16 + (size_t)(number * 37 % 8) * 16, bytes = batch * WIDTH * sizeof(float);
    void *activation[LAYERS + 1];
    for (int i = 0; i <= LAYERS; i++) {
        void *workspace = take(bytes / 4 + (size_t)i * 4096);
        activation[i] = take(bytes);
        check(cudaMemsetAsync(workspace, 0xee, bytes / 4, t->stream), "cudaMemsetAsync");
        check(cudaMemsetAsync(activation[i], number + i, bytes, t->stream), "cudaMemsetAsync");
        give(workspace);
    }
    for (int i = LAYERS; i >= 0; i--) {
        void *gradient = take(i ? layer_floats * sizeof(float) : bytes);
        check(cudaMemsetAsync(gradient, 0x55, bytes, t->stream), "cudaMemsetAsync");
        verify(t, activation[i], bytes, number + i);
        give(activation[i]);
        give(gradient);
    }
    check(cudaEventRecord(t->done, t->stream), "cudaEventRecord");
    check(cudaEventSynchronize(t->done), "cudaEventSynchronize");
}

static void end(struct training *t)
{
    for (int i = 0; i < LAYERS; i++) {
        verify(t, t->parameters[i], layer_floats * sizeof(float), i + 1);
        verify(t, t->momentum[i], layer_floats * sizeof(float), 0);
        give(t->parameters[i]);
        give(t->momentum[i]);
    }
    free(t->host);
    check(cudaEventDestroy(t->done), "cudaEventDestroy");
    check(cudaStreamDestroy(t->stream), "cudaStreamDestroy");
}

int main(int argc, char **argv)
{
    struct training t = {0};
    int steps = argc > 1 ? atoi(argv[1]) : 40;
    size_t free_bytes, total_bytes;
    check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    printf("train_loop: %d layers, %d steps, device of %zu MiB\n", LAYERS, steps,
           total_bytes >> 20);
    begin(&t);
    for (int i = 0; i < steps; i++)
        step(&t, i);
    end(&t);
    printf("train_loop: %zu MiB read back and right\n", t.bytes_checked >> 20);
    return 0;
}
