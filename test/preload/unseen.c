/* A generator of programs whose work may pass the library: `unseen WAY FIRST COUNT PLUGIN`. Each
 * number from FIRST on is a program of its own, in a child: 1 to 3 threads, 1 to 3 streams, works
 * of 10 us to 1 ms on blocks of two sizes, all freed while the work runs. Natively each is free of
 * races, since cuMemFree waits for the device. The simulated device aborts where it is not.
 *
 * WAY says how a program finds the function that works: linked; deep, lazy (a plugin opened with
 * RTLD_DEEPBIND); registers (the same, and its constructor gives the function away); denied (the same, and its tables cannot be written); namespace, copy (a second
 * libcuda is loaded, which could do work past us); taken (by libc's own dlsym, so that nothing names
 * it). In programs of `linked` to `copy` the library is loaded at the start
 * or later, and a part of the work is submitted by the program itself. `mixed` is taken with such a
 * part, `late` is taken after frees without work.
 *
 * Prints how many programs ended as natively, were aborted, and were said to have unseen work. */
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "driver_case.h"

#define OPERATIONS 30
#define MOST 3

typedef int work_function(CUdeviceptr, size_t, CUstream, int);

static struct program {
    const char *way, *plugin;
    uint64_t seed;
    CUcontext context;
    CUstream stream[MOST];
    unsigned threads, streams, seen; /* of 4 works so many are submitted by the program itself */
    work_function *past;
} program;

static uint64_t next(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random >> 20;
}

static int is_way(const char *way)
{
    return strcmp(program.way, way) == 0;
}

static work_function *taken;
static int by_taken(CUdeviceptr p, size_t n, CUstream stream, int value)
{
    return ((CUresult(*)(CUdeviceptr, unsigned char, size_t, CUstream))(void *)taken)(
        p, (unsigned char)value, n, stream);
}

static int itself(CUdeviceptr p, size_t n, CUstream stream, int value)
{
    return cuMemsetD8Async(p, (unsigned char)value, n, stream);
}

static void deny(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwrite64, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof rules / sizeof *rules, .filter = rules};
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
}

/* Finds the function that works. */
static work_function *find(void)
{
    if (is_way("linked"))
        return itself;
    if (is_way("taken") || is_way("mixed") || is_way("late")) {
        void *(*look_up)(void *, const char *) = NULL;
        static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
        for (unsigned i = 0; i < 3 && !look_up; i++)
            look_up = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", versions[i]);
        CHECK(look_up);
        taken = (work_function *)look_up(dlopen("libcuda.so.1", RTLD_NOW), "cuMemsetD8Async");
        CHECK(taken);
        return by_taken;
    }
    if (is_way("namespace") || is_way("copy")) { /* there, but no work comes from it */
        CHECK(is_way("copy") ? dlopen("./copy_of_libcuda.so", RTLD_NOW)
                             : dlmopen(LM_ID_NEWLM, program.plugin, RTLD_NOW));
        return itself;
    }
    if (is_way("denied"))
        deny();
    if (is_way("registers")) {
        work_function *work = NULL;
        char at[32];
        snprintf(at, sizeof at, "%p", (void *)&work);
        setenv("UNSEEN_WORK_AT", at, 1);
        CHECK(dlopen(program.plugin, RTLD_NOW | RTLD_DEEPBIND) && work);
        return work;
    }
    int when = is_way("lazy") ? RTLD_LAZY : RTLD_NOW;
    void *plugin = dlopen(program.plugin, when | RTLD_DEEPBIND);
    CHECK(plugin);
    return (work_function *)dlsym(plugin, "work");
}

static void *run(void *argument)
{
    uint64_t random = program.seed * 8 + (uint64_t)(uintptr_t)argument + 1;
    random *= UINT64_C(0x9e3779b97f4a7c15);
    OK(cuCtxSetCurrent(program.context));
    for (int i = 0; i < OPERATIONS; i++) {
        size_t bytes = next(&random) % 2 ? 4 * MIB : 64 * KIB;
        CUdeviceptr block = make(bytes);
        CUstream stream = program.stream[next(&random) % program.streams];
        work_function *work = next(&random) % 4 < program.seen ? itself : program.past;
        OK(work(block, bytes, stream, i));
        if (next(&random) % 4 == 0) /* natively in order, and now and then nothing is outstanding */
            OK(cuCtxSynchronize());
        OK(cuMemFree_v2(block));
    }
    return NULL;
}

static void idle(unsigned frees)
{
    for (unsigned i = 0; i < frees; i++)
        OK(cuMemFree_v2(make(i % 2 ? 4 * MIB : 64 * KIB)));
}

static void one(uint64_t seed)
{
    static const char *const latency[] = {"10000", "50000", "200000", "1000000"};
    uint64_t random = (seed + 1) * UINT64_C(0xd1342543de82ef95);
    pthread_t thread[MOST];
    next(&random);
    program.seed = seed;
    program.threads = (unsigned)next(&random) % MOST + 1;
    program.streams = (unsigned)next(&random) % MOST + 1;
    program.seen = is_way("taken") || is_way("late") ? 0 : (unsigned)next(&random) % 4;
    setenv("CACHALOT_SIM_LATENCY_NS", latency[next(&random) % 4], 1);
    int later = next(&random) % 2;
    program.past = later ? NULL : find();
    program.context = begin();
    for (unsigned i = 0; i < MOST; i++)
        OK(cuStreamCreate(&program.stream[i], CU_STREAM_NON_BLOCKING));
    if (is_way("late"))
        idle(100 + (unsigned)next(&random) % 1000);
    else
        idle((unsigned)next(&random) % 60); /* fewer than the looks that come first */
    if (later)
        program.past = find();
    for (unsigned i = 1; i < program.threads; i++)
        OK(pthread_create(&thread[i], NULL, run, (void *)(uintptr_t)i));
    run(NULL);
    for (unsigned i = 1; i < program.threads; i++)
        OK(pthread_join(thread[i], NULL));
    OK(cuCtxSynchronize());
    exit(0);
}

/* Does the child's report say that work went past? Removes it. */
static int says_unseen(pid_t child)
{
    char path[64], text[1 << 15];
    snprintf(path, sizeof path, "unseen.%d.json", (int)child);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    unlink(path);
    text[n] = '\0';
    const char *at = strstr(text, "\"unseen_work\": ");
    return at && at[strlen("\"unseen_work\": ")] != '0';
}

int main(int count, char **argument)
{
    unsigned ended = 0, aborted = 0, said = 0;
    CHECK(count == 5);
    program.way = argument[1];
    program.plugin = argument[4];
    if (!atol(argument[3])) /* the program FIRST, in this process */
        one((uint64_t)atol(argument[2]));
    setenv("CACHALOT_OUTPUT", "unseen.%p.json", 1);
    for (long seed = atol(argument[2]), i = 0; i < atol(argument[3]); i++) {
        int status = 0;
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            if (!freopen("/dev/null", "w", stderr))
                _exit(98);
            one((uint64_t)(seed + i));
        }
        CHECK(waitpid(child, &status, 0) == child);
        ended += status == 0;
        aborted += WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
        if (status && !WIFSIGNALED(status))
            printf("program %ld: code %d\n", seed + i, WEXITSTATUS(status));
        said += says_unseen(child);
    }
    printf("ended: %u\naborted: %u\nsaid: %u\n", ended, aborted, said);
    return 0;
}
