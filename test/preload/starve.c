/* Takes pieces of 2 MiB, as many as asked for; where there is no more it tries again for some
 * seconds; with a third argument it holds them as long. */
#include <stdlib.h>
#include <time.h>

#include <cuda_runtime_api.h>

#include "case.h"

int main(int argc, char **argv)
{
    int wanted = argc > 1 ? atoi(argv[1]) : 0, count = 0;
    time_t end = time(NULL) + (argc > 2 ? atoi(argv[2]) : 0);
    void *piece;
    while (count < wanted || argc > 3) {
        if (count < wanted && cudaMalloc(&piece, 2 * MIB) == cudaSuccess)
            count++;
        else if (time(NULL) > end)
            break;
        else
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    SAY(count);
    return 0;
}
