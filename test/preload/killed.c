/* Children that allocate and free in two threads and are killed at random moments: one half from
 * their first instruction on, the other from their first request on. For each: its pid, and how
 * many requests and frees it had begun and ended, counted by itself. Arguments: how many, the seed.
 */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "case.h"

#define MOST_US 6000 /* a few times what the start takes */

static struct counts {
    atomic_ulong requests_begun, requests_ended, frees_begun, frees_ended;
} * counts;

static void *work(void *unused)
{
    void *block[8] = {0};
    for (unsigned i = 0;; i++) {
        void **mine = &block[i * 5 % 8];
        if (*mine) {
            counts->frees_begun++;
            OK(cudaFree(*mine));
            counts->frees_ended++;
            *mine = NULL;
        } else {
            counts->requests_begun++;
            OK(cudaMalloc(mine, 1 + i * 7919u % (3 * MIB)));
            counts->requests_ended++;
        }
    }
    return unused;
}

static _Noreturn void live(void)
{
    pthread_t thread;
    OK(pthread_create(&thread, NULL, work, NULL));
    work(NULL);
    _exit(98);
}

int main(int count, char **argument)
{
    CHECK(count == 3);
    unsigned random = (unsigned)atoi(argument[2]);
    counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(counts != MAP_FAILED);
    for (int i = 0; i < atoi(argument[1]); i++) {
        int status;
        *counts = (struct counts){0};
        pid_t child = fork();
        if (child == 0)
            live();
        for (int wait = 0; i % 2 && !counts->requests_ended && wait < 50000; wait++)
            usleep(100);
        random = random * 1103515245u + 12345u;
        usleep(random / 65536 % MOST_US);
        OK(kill(child, SIGKILL));
        OK(waitpid(child, &status, 0) != child || !WIFSIGNALED(status));
        printf("%d %lu %lu %lu %lu\n", child, counts->requests_begun, counts->requests_ended,
               counts->frees_begun, counts->frees_ended);
    }
    return 0;
}
