/* A thread that is to be cancelled at its next cancellation point: cudaMalloc and cudaFree are none.
 * Argument: begin: its first call is the process's; exit: and it ends the process. */
#include <cuda_runtime.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int exits;

static void *work(void *unused)
{
    void *block;
    int code = 0;
    (void)unused;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cancel(pthread_self());
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    for (size_t i = 1; i < 200 && !code; i++)
        code = cudaMalloc(&block, i * 100000) || cudaFree(block);
    if (exits)
        exit(code ? code : 6);
    return code ? PTHREAD_CANCELED : NULL;
}

int main(int count, char **argument)
{
    void *block, *result;
    pthread_t thread;
    exits = count > 1 && !strcmp(argument[1], "exit");
    if (exits && cudaMalloc(&block, 1000))
        return 2;
    if (pthread_create(&thread, NULL, work, NULL) || pthread_join(thread, &result))
        return 3;
    printf("%s\n", result ? "cancelled" : "done");
    return cudaMalloc(&block, 5000) || cudaFree(block);
}
