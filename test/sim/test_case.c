#include "test_case.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CASE_SECONDS 30

CUcontext context;
CUstream a, b, blocking;
CUdeviceptr memory;
struct cachalot_sim_range write_it, read_it;

void begin(void)
{
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuMemAlloc(&memory, 4 << 20));
    write_it = (struct cachalot_sim_range){memory + 4096, 4096, 1};
    read_it = (struct cachalot_sim_range){memory + 8191, 4096, 0};
}

void launch(CUstream stream, uint64_t ns, const struct cachalot_sim_range *range)
{
    OK(cachalot_sim_launch(stream, ns, range, range != NULL));
}

void launch_programmatic(CUstream stream, struct cachalot_sim_range *range)
{
    struct cachalot_sim_kernel kernel = {.ns = 1000, .ranges = range, .range_count = range != NULL};
    void *parameters[] = {&kernel};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {.hStream = stream, .attrs = &attribute, .numAttrs = 1};
    OK(cuLaunchKernelEx(&config, cachalot_sim_function(), parameters, NULL));
}

CUevent event_after(CUstream stream)
{
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(event, stream));
    return event;
}

void test_failed(const char *file, int line, const char *what, long long got)
{
    fprintf(stderr, "%s:%d: %s does not hold (got %lld)\n", file, line, what, got);
    _exit(1);
}

static void set_environment(const char *text)
{
    char copy[512], *rest = NULL;
    snprintf(copy, sizeof(copy), "%s", text ? text : "");
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        setenv(word, equals + 1, 1);
    }
}

static _Noreturn void run_child(const struct test_case *test, int output)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    dup2(output, STDERR_FILENO);
    alarm(CASE_SECONDS);
    set_environment(test->environment);
    test->run();
    _exit(0);
}

static void read_all(int input, char *text, size_t size)
{
    size_t length = 0;
    for (;;) {
        char spill[256];
        char *to = length + 1 < size ? text + length : spill;
        size_t room = length + 1 < size ? size - 1 - length : sizeof(spill);
        ssize_t got = read(input, to, room);
        if (got <= 0)
            break;
        if (to != spill)
            length += (size_t)got;
    }
    text[length] = '\0';
}

static int says_all(const char *text, const char *wanted)
{
    char copy[512], *rest = NULL;
    snprintf(copy, sizeof(copy), "%s", wanted);
    for (char *word = strtok_r(copy, "|", &rest); word; word = strtok_r(NULL, "|", &rest))
        if (!strstr(text, word))
            return 0;
    return 1;
}

static int case_passed(const struct test_case *test, int status, const char *text)
{
    if (!test->aborts_with)
        return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT &&
           strncmp(text, "cachalot-sim: ", 14) == 0 && says_all(text, test->aborts_with);
}

int test_run(const struct test_case *cases, size_t count)
{
    static char text[8192];
    int failed = 0;
    printf("1..%zu\n", count);
    for (size_t i = 0; i < count; i++) {
        int ends[2], status = 0;
        if (pipe(ends))
            return 1;
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            close(ends[0]);
            run_child(&cases[i], ends[1]);
        }
        close(ends[1]);
        read_all(ends[0], text, sizeof(text));
        close(ends[0]);
        waitpid(child, &status, 0);
        int passed = case_passed(&cases[i], status, text);
        printf("%sok %zu - %s\n", passed ? "" : "not ", i + 1, cases[i].name);
        if (!passed)
            fprintf(stderr, "%s: status 0x%x\n    %s\n", cases[i].name, (unsigned)status, text);
        failed += !passed;
    }
    return failed != 0;
}
