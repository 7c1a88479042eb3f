/* Programs that are right natively and easy to hang: a spinning kernel that the host, a kernel or a
 * host function on another stream lets go, with frees and mallocs around it in every order.
 *     hang note FILE [EVERY]   notes for each order whether it ends: run it natively
 *     hang check FILE [EVERY]  tries those that do; exit 1 if one hangs now
 * An order that hangs is let go after a while by the watch, which is also how we get on natively.
 */
#include "../preload/case.h"
#include "hang.h"
#include "hang_device.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#define BLOCK (3 * MIB)
#define SMALL 4096

struct state {
    const struct order *order;
    CUdeviceptr old, taken[2]; /* the block freed; the ones taken, by thread */
    CUdeviceptr spun;
};

static CUcontext context;
static CUstream streams[2][KINDS]; /* the lane's, the other's */
static volatile int *flag;
static double watch_seconds;
static double deadline; /* of the order under way; 0: none. Behind `lock`, as is `hung`. */
static int hung;
static unsigned current;
static struct order current_order;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct state state;
static int posted, finished; /* steps of the second thread, behind `lock` */
static char queue[12];

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void release(void *unused)
{
    (void)unused;
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
}

/* Lets a hanging order go once, and ends the process if that does not help. */
static void *watch(void *unused)
{
    for (;;) {
        usleep(20000);
        pthread_mutex_lock(&lock);
        double late = deadline > 0 ? now() - deadline : -1;
        if (late > 0 && !hung) {
            hung = 1;
            release(NULL);
        }
        if (late > 10) {
            printf("does not end, even when let go: ");
            order_print(current, &current_order);
            _exit(3);
        }
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

static void feed(const struct order *order)
{
    CUstream stream = streams[1][order->other];
    if (order->feeder == HOST)
        release(NULL);
    else if (order->feeder == KERNEL)
        OK(device_feed(stream, flag));
    else
        OK(cuLaunchHostFunc(stream, release, NULL));
}

static void run_step(int step, int second)
{
    const struct order *order = state.order;
    CUdeviceptr *taken = &state.taken[second];
    int other = second || order->use_on_other;
    CUstream stream = streams[other][other ? order->other : order->lane];
    if (step == FREE_OLD)
        OK(cuMemFree(state.old));
    else if (step == TAKE)
        OK(cuMemAlloc(taken, BLOCK));
    else if (step == SPIN)
        OK(device_spin(streams[0][order->lane], flag, state.spun, SMALL));
    else if (step == FEED)
        feed(order);
    else if (step == USE)
        OK(device_write(stream, 1000, *taken, BLOCK));
    else
        OK(cuMemFree(*taken));
}

/* The second thread does what is posted, in order. */
static void *second_thread(void *unused)
{
    OK(cuCtxSetCurrent(context));
    pthread_mutex_lock(&lock);
    for (;;) {
        while (finished == posted)
            pthread_cond_wait(&changed, &lock);
        int step = queue[finished];
        pthread_mutex_unlock(&lock);
        run_step(step, 1);
        pthread_mutex_lock(&lock);
        finished++;
        pthread_cond_broadcast(&changed);
    }
    return unused;
}

/* Until the second thread is done with what is posted; at most for `seconds` if that is not 0. */
static void wait_for_second(double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(seconds * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (finished < posted)
        if (seconds == 0)
            pthread_cond_wait(&changed, &lock);
        else if (pthread_cond_timedwait(&changed, &lock, &until))
            return;
}

static void post(int step)
{
    pthread_mutex_lock(&lock);
    queue[posted++] = (char)step;
    pthread_cond_broadcast(&changed);
    wait_for_second(0.002);
    pthread_mutex_unlock(&lock);
}

/* Nothing is outstanding, and whoever keeps books has seen it. */
static void settle(void)
{
    CUdeviceptr block;
    for (int i = 0; i < 2; i++) {
        OK(cuMemAlloc(&block, SMALL));
        OK(cuMemFree(block));
        OK(cuCtxSynchronize());
    }
    OK(cuMemAlloc(&block, SMALL));
    OK(cuMemFree(block));
}

static void set_watch(double seconds)
{
    pthread_mutex_lock(&lock);
    deadline = seconds > 0 ? now() + seconds : 0;
    if (seconds > 0) /* left set at the end, for the order's result */
        hung = posted = finished = 0;
    pthread_mutex_unlock(&lock);
}

/* Does it end by itself? */
static int order_run(unsigned n, const struct order *order)
{
    current = n;
    current_order = *order;
    state.order = order;
    set_watch(watch_seconds);
    *flag = 0;
    OK(cuMemAlloc(&state.old, BLOCK));
    if (order->prior == ON_LANE || order->prior == ON_BOTH)
        OK(device_write(streams[0][order->lane], 50000, state.old, BLOCK));
    if (order->prior == ON_BOTH)
        OK(cuCtxSynchronize());
    if (order->prior == ON_OTHER || order->prior == ON_BOTH)
        OK(device_write(streams[1][order->other], 50000, state.old, BLOCK));
    for (int i = 0; i < order->count; i++)
        if (order->second[i])
            post(order->step[i]);
        else
            run_step(order->step[i], 0);
    pthread_mutex_lock(&lock);
    wait_for_second(0);
    pthread_mutex_unlock(&lock);
    OK(cuCtxSynchronize());
    set_watch(0);
    OK(cuMemFree(state.taken[0]));
    settle();
    return !hung;
}

static void begin(void)
{
    pthread_t thread;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    device_begin();
    flag = device_flag();
    OK(cuMemAlloc(&state.spun, SMALL));
    for (int i = 0; i < 2; i++) {
        streams[i][LEGACY] = i ? CU_STREAM_LEGACY : NULL;
        streams[i][PER_THREAD] = CU_STREAM_PER_THREAD;
        OK(cuStreamCreate(&streams[i][BLOCKING], CU_STREAM_DEFAULT));
        OK(cuStreamCreate(&streams[i][FREE], CU_STREAM_NON_BLOCKING));
    }
    *flag = 1; /* each kernel once: what is loaded later would wait for the device */
    OK(device_spin(NULL, flag, state.spun, SMALL));
    OK(device_feed(NULL, flag));
    OK(device_write(NULL, 1000, state.spun, SMALL));
    OK(cuCtxSynchronize());
    OK(pthread_create(&thread, NULL, watch, NULL));
    OK(pthread_create(&thread, NULL, second_thread, NULL));
}

/* Tries an order natively; of those that hang for one known reason only three. */
static char order_note(unsigned n, const struct order *order, unsigned hung_before[64])
{
    unsigned class = order_class(order);
    if (!order_ends(order))
        return '-';
    if (class && hung_before[class] == 3)
        return '0';
    if (order_run(n, order))
        return '1';
    hung_before[class] += class != 0;
    return '0';
}

static int usage(void)
{
    fputs("usage: hang note|check FILE [EVERY]\n", stderr);
    return 2;
}

int main(int count, char **argument)
{
    struct order order;
    unsigned counts[128] = {0}, hung_before[64] = {0}, tried = 0, bad = 0;
    if (count < 3 || count > 4 || (strcmp(argument[1], "note") && strcmp(argument[1], "check")))
        return usage();
    int note = argument[1][0] == 'n', result = '0';
    unsigned every = count > 3 ? (unsigned)atoi(argument[3]) : 1;
    FILE *file = fopen(argument[2], note ? "w" : "r");
    CHECK(file && every);
    watch_seconds = note ? 2 : 20;
    begin();
    double started = now();
    for (unsigned n = 0; order_make(n, &order); n++) {
        if (order.count == 0 || n * 2654435761u % every)
            continue;
        if (note) {
            result = order_note(n, &order, hung_before);
            CHECK(fputc(result, file) == result);
        } else {
            CHECK((result = fgetc(file)) != EOF);
            if (result == '1') {
                tried++;
                if (!order_run(n, &order)) {
                    bad++;
                    printf("hangs: ");
                    order_print(n, &order);
                }
            }
        }
        counts[result]++;
        if (bad == 5)
            break;
    }
    CHECK(fclose(file) == 0);
    printf("{\"orders\": %u, \"end\": %u, \"hang_natively\": %u, \"hang_by_the_rules\": %u, "
           "\"tried\": %u, \"hung\": %u, \"seconds\": %.1f}\n",
           counts['0'] + counts['1'] + counts['-'], counts['1'], counts['0'], counts['-'], tried,
           bad, now() - started);
    fflush(stdout);
    _exit(bad ? 1 : 0); /* the other threads wait for ever */
}
