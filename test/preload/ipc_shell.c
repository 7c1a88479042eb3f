/* Memory shared with other processes, by commands on stdin: one line of answer for each. Memory is
 * named by a number from 0: made, or opened. */
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "driver_case.h"

#define MOST 64

static CUdeviceptr memory[MOST];
static size_t size[MOST];
static int count;
static CUcontext context;

static void show_handle(const unsigned char *handle)
{
    for (size_t i = 0; i < sizeof(CUipcMemHandle); i++)
        printf("%02x", handle[i]);
    printf("\n");
}

static void export(int number, size_t offset)
{
    CUipcMemHandle handle;
    CUresult result = cuIpcGetMemHandle(&handle, memory[number] + offset);
    if (result)
        printf("error %d\n", result);
    else
        show_handle((unsigned char *)&handle);
}

static void open_handle(const char *text, size_t bytes)
{
    CUipcMemHandle handle;
    unsigned char *byte = (unsigned char *)&handle;
    for (size_t i = 0; i < sizeof handle; i++)
        CHECK(sscanf(text + 2 * i, "%2hhx", &byte[i]) == 1);
    CUresult result = cuIpcOpenMemHandle(&memory[count], handle, 1);
    size[count] = bytes;
    if (result)
        printf("error %d\n", result);
    else
        printf("%d\n", count++);
}

/* The byte that all of it is; -1: not all are the same. */
static void read_all(int number)
{
    unsigned char *bytes = malloc(size[number]);
    int value = -1;
    OK(cuMemcpyDtoH(bytes, memory[number], size[number]));
    if (memcmp(bytes, bytes + 1, size[number] - 1) == 0)
        value = bytes[0];
    printf("%d\n", value);
    free(bytes);
}

static void show_range(int number, size_t offset)
{
    CUdeviceptr base = 0;
    CUcontext owner = NULL;
    size_t bytes = 0;
    int legacy = 0;
    CUdeviceptr at = memory[number] + offset;
    OK(cuMemGetAddressRange(&base, &bytes, at));
    OK(cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at));
    OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, at));
    printf("%lld %zu %d %d\n", (long long)(at - base), bytes, owner == context, legacy);
}

static int is_socket(int fd)
{
    char path[32], what[8] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return readlink(path, what, sizeof what - 1) > 0 && !strncmp(what, "socket:", 7);
}

/* The sockets that a forked child has. */
static int count_in_child(void)
{
    int code = 0, sockets = 0;
    pid_t child = fork();
    if (child == 0) {
        for (int fd = 3; fd < 1024; fd++)
            sockets += is_socket(fd);
        _exit(sockets);
    }
    CHECK(waitpid(child, &code, 0) == child);
    return WEXITSTATUS(code);
}

/* Our sockets' numbers become the program's own; does a forked child have those? */
static int replace_sockets(void)
{
    int code = 0, first = 0;
    for (int fd = 3; fd < 1024; fd++)
        if (is_socket(fd)) {
            CHECK(dup2(STDIN_FILENO, fd) == fd);
            first = fd;
        }
    pid_t child = fork();
    if (child == 0)
        _exit(fcntl(first, F_GETFD) >= 0);
    CHECK(waitpid(child, &code, 0) == child);
    return WEXITSTATUS(code);
}

static void one(const char *line)
{
    char word[16] = "", text[200] = "";
    long long a = 0, b = 0;
    CHECK(sscanf(line, "%15s", word) == 1);
    if (strcmp(word, "open") == 0) {
        CHECK(sscanf(line, "%*s %199s %lld", text, &a) == 2);
        open_handle(text, (size_t)a);
        return;
    }
    sscanf(line, "%*s %lld %lld", &a, &b);
    if (strcmp(word, "make") == 0) {
        memory[count] = make((size_t)a);
        size[count] = (size_t)a;
        printf("%d\n", count++);
    } else if (strcmp(word, "fill") == 0) {
        OK(cuMemsetD8(memory[a], (unsigned char)b, size[a]));
        printf("%d\n", cuCtxSynchronize());
    } else if (strcmp(word, "set") == 0) { /* without waiting for it */
        printf("%d\n", cuMemsetD8(memory[a], (unsigned char)b, size[a]));
    } else if (strcmp(word, "export") == 0) {
        export((int)a, (size_t)b);
    } else if (strcmp(word, "read") == 0) {
        read_all((int)a);
    } else if (strcmp(word, "range") == 0) {
        show_range((int)a, (size_t)b);
    } else if (strcmp(word, "same") == 0) {
        printf("%d\n", memory[a] == memory[b]);
    } else if (strcmp(word, "close") == 0) {
        printf("%d\n", cuIpcCloseMemHandle(memory[a]));
    } else if (strcmp(word, "free") == 0) {
        printf("%d\n", cuMemFree(memory[a]));
    } else if (strcmp(word, "fork") == 0) {
        printf("%d\n", count_in_child());
    } else if (strcmp(word, "replace") == 0) {
        printf("%d\n", replace_sockets());
    } else if (strcmp(word, "exec") == 0) {
        execl("/bin/cat", "cat", NULL);
    } else if (strcmp(word, "files") == 0) { /* so many may be open */
        struct rlimit most;
        CHECK(!getrlimit(RLIMIT_NOFILE, &most));
        most.rlim_cur = (rlim_t)a;
        printf("%d\n", setrlimit(RLIMIT_NOFILE, &most));
    } else if (strcmp(word, "context") == 0) {
        context = new_context(0);
        printf("0\n");
    } else if (strcmp(word, "peer") == 0) {
        new_context(1);
        printf("%d\n", cuCtxEnablePeerAccess(context, 0));
    } else if (strcmp(word, "back") == 0) {
        printf("%d\n", cuCtxSetCurrent(context));
    } else if (strcmp(word, "destroy") == 0) {
        printf("%d\n", cuCtxDestroy(context));
    } else if (strcmp(word, "hangup") == 0) { /* as who closes what he does not know */
        for (int fd = 3; fd < 1024; fd++)
            if (is_socket(fd))
                printf("%ld\n", syscall(SYS_close, fd)); /* a race, for a sanitizer */
    } else {
        OK(strcmp(word, "a command"));
    }
}

int main(void)
{
    char line[400];
    context = begin();
    while (fgets(line, sizeof line, stdin)) {
        one(line);
        fflush(stdout);
    }
    return 0;
}
