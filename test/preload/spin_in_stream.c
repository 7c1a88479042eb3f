/* A spinning kernel, and frees in a stream, mallocs and a copy to the host around it, in every
 * order: natively none of them waits, so every order ends once the host, or a kernel on another
 * stream, lets the kernel go. */
#include <pthread.h>
#include <stdatomic.h>

#include "driver_case.h"

enum step { SPIN, FREE, TAKE, COPY, FEED, STEPS };
enum { BLOCK = 3 << 20, SMALL = 4096 };

struct order {
    CUstream lane;
    int kernel_feeds, prior, late; /* prior: who used the old block: 0 none, 1 lane, 2 the other */
    int step[STEPS];
};

static CUstream other;
static volatile int flag;
static unsigned char *seen;
static atomic_uint begun; /* orders */
static struct order now;

static void *watch(void *unused)
{
    static const char *const names[] = {"spin", "free", "malloc", "copy", "feed"};
    for (unsigned last = 0;; last = begun) {
        sleep(15);
        if (last != begun)
            continue;
        printf("hangs: lane %p, %s feeds, prior %d, late %d:", (void *)now.lane,
               now.kernel_feeds ? "a kernel" : "the host", now.prior, now.late);
        for (int i = 0; i < STEPS; i++)
            printf(" %s", names[now.step[i]]);
        printf("\n");
        fflush(stdout);
        _exit(3);
    }
    return unused;
}

static void feed(void)
{
    if (now.kernel_feeds)
        OK(cachalot_sim_launch_signal(other, 1000, &flag, NULL, 0));
    else
        __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
}

static void run(void)
{
    CUdeviceptr old = make(BLOCK), small = make(SMALL), taken = 0;
    struct cachalot_sim_range range = {small, SMALL, 1};
    flag = 0;
    if (now.prior)
        write_all(now.prior == 1 ? now.lane : other, 20000, old, BLOCK);
    for (int i = 0; i < STEPS; i++) {
        switch (now.step[i]) {
        case SPIN:
            OK(cachalot_sim_launch_spin(now.lane, &flag, &range, 1));
            break;
        case FREE:
            OK(cuMemFreeAsync(old, now.prior == 2 ? other : now.lane));
            break;
        case TAKE:
            if (now.late)
                usleep(400);
            OK(cuMemAlloc(&taken, BLOCK));
            write_all(other, 1000, taken, BLOCK);
            break;
        case COPY:
            OK(cuMemcpyDtoHAsync(seen, small, SMALL, now.lane));
            break;
        default:
            feed();
        }
    }
    OK(cuCtxSynchronize());
    OK(cuMemFree(taken));
    OK(cuMemFree(small));
    begun++;
}

/* The n-th permutation. */
static void permute(int n)
{
    int left[STEPS] = {SPIN, FREE, TAKE, COPY, FEED};
    for (int i = 0; i < STEPS; i++) {
        int pick = n % (STEPS - i);
        n /= STEPS - i;
        now.step[i] = left[pick];
        for (int j = pick; j + 1 < STEPS - i; j++)
            left[j] = left[j + 1];
    }
}

int main(void)
{
    CUstream lanes[4] = {NULL, CU_STREAM_PER_THREAD, NULL, NULL};
    pthread_t thread;
    begin();
    OK(cuMemAllocHost((void **)&seen, SMALL));
    OK(cuStreamCreate(&lanes[2], CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&lanes[3], CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(pthread_create(&thread, NULL, watch, NULL));
    for (int n = 0; n < 120 * 4 * 2 * 3 * 2; n++) {
        int rest = n / 120;
        permute(n % 120);
        now.lane = lanes[rest % 4];
        now.kernel_feeds = rest / 4 % 2;
        now.prior = rest / 8 % 3;
        now.late = rest / 24;
        run();
    }
    SAY(begun);
    _exit(0);
}
