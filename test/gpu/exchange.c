/* exchange cuda|host: two processes send each other buffers by UCX, tagged messages between GPU (or
 * host) memory, forth and back, each in a new buffer and at an offset into it; every byte is
 * compared. Prints a line for each size, the same whoever stands in front. libcuda by dlsym. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

#define ROUNDS 2
#define TAG 7

static const size_t sizes[] = {1, 700, 8192, 1 << 20, (3 << 20) + 5, 7 << 20, 33 << 20};
static const size_t offsets[] = {0, 256, 1 << 20};

typedef uint64_t pointer; /* CUdeviceptr */

static int rank, on_gpu, other;
static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h peer;
static int (*gpu_alloc)(pointer *, size_t), (*gpu_free)(pointer), (*gpu_sync)(void),
    (*gpu_to)(pointer, const void *, size_t), (*gpu_from)(void *, pointer, size_t);

static void must(long code, const char *what)
{
    if (!code)
        return;
    printf("%s: %ld (process %d)\n", what, code, rank);
    fflush(stdout);
    _exit(1);
}

static void *find(void *cuda, const char *name)
{
    void *found = dlsym(cuda, name);
    must(!found, name);
    return found;
}

static void start_gpu(void)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *primary = NULL;
    must(!cuda, "dlopen of libcuda");
    must(((int (*)(unsigned))find(cuda, "cuInit"))(0), "cuInit");
    must(((int (*)(void **, int))find(cuda, "cuDevicePrimaryCtxRetain"))(&primary, 0), "context");
    must(((int (*)(void *))find(cuda, "cuCtxSetCurrent"))(primary), "cuCtxSetCurrent");
    *(void **)&gpu_alloc = find(cuda, "cuMemAlloc_v2");
    *(void **)&gpu_free = find(cuda, "cuMemFree_v2");
    *(void **)&gpu_sync = find(cuda, "cuCtxSynchronize");
    *(void **)&gpu_to = find(cuda, "cuMemcpyHtoD_v2");
    *(void **)&gpu_from = find(cuda, "cuMemcpyDtoH_v2");
}

static pointer take(size_t bytes)
{
    pointer block = on_gpu ? 0 : (pointer)malloc(bytes);
    if (on_gpu)
        must(gpu_alloc(&block, bytes), "cuMemAlloc");
    return block;
}

static void give(pointer block)
{
    if (on_gpu)
        must(gpu_free(block), "cuMemFree");
    else
        free((void *)block);
}

static void fill(pointer to, const unsigned char *from, size_t bytes)
{
    if (!on_gpu)
        memcpy((void *)to, from, bytes);
    else
        must(gpu_to(to, from, bytes) || gpu_sync(), "cuMemcpyHtoD");
}

static void look(unsigned char *to, pointer from, size_t bytes)
{
    if (!on_gpu)
        memcpy(to, (void *)from, bytes);
    else
        must(gpu_from(to, from, bytes), "cuMemcpyDtoH");
}

static void finish(ucs_status_ptr_t request, const char *what)
{
    if (UCS_PTR_IS_ERR(request))
        must(UCS_PTR_STATUS(request), what);
    if (!request)
        return;
    while (ucp_request_check_status(request) == UCS_INPROGRESS)
        ucp_worker_progress(worker);
    must(ucp_request_check_status(request), what);
    ucp_request_free(request);
}

static void send_block(pointer block, size_t bytes)
{
    const ucp_request_param_t none = {0};
    finish(ucp_tag_send_nbx(peer, (void *)block, bytes, TAG, &none), "send");
}

static void receive_block(pointer block, size_t bytes)
{
    const ucp_request_param_t none = {0};
    finish(ucp_tag_recv_nbx(worker, (void *)block, bytes, TAG, ~(ucp_tag_t)0, &none), "receive");
}

static void pattern(unsigned char *bytes, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)(seed * 31 + i * 7 + (i >> 8) + (i >> 16));
}

/* The other's address through the socket, ours the same way. */
static void connect_peer(void)
{
    ucp_address_t *own;
    size_t length, their_length;
    must(ucp_worker_get_address(worker, &own, &length), "address");
    must(write(other, &length, sizeof length) != sizeof length, "write");
    must(write(other, own, length) != (ssize_t)length, "write");
    must(read(other, &their_length, sizeof their_length) != sizeof their_length, "read");
    char *theirs = malloc(their_length);
    for (size_t got = 0; got < their_length;) {
        ssize_t n = read(other, theirs + got, their_length - got);
        must(n <= 0, "read");
        got += (size_t)n;
    }
    const ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                .address = (ucp_address_t *)theirs};
    must(ucp_ep_create(worker, &to, &peer), "endpoint");
    ucp_worker_release_address(worker, own);
    free(theirs);
}

static void start_ucx(void)
{
    const ucp_params_t wants = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                .features = UCP_FEATURE_TAG};
    const ucp_worker_params_t single = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SINGLE};
    must(ucp_init(&wants, NULL, &context), "ucp_init");
    must(ucp_worker_create(context, &single, &worker), "ucp_worker_create");
    connect_peer();
}

/* Forth and back, the second time other bytes: each side compares what it got. */
static void exchange(size_t bytes, size_t offset, unsigned seed)
{
    unsigned char *wanted = malloc(bytes), *got = malloc(bytes);
    pointer block = take(bytes + offset), at = block + offset;
    for (int turn = 0; turn < 2; turn++) {
        pattern(wanted, bytes, seed + (unsigned)turn);
        if (turn == rank) {
            fill(at, wanted, bytes);
            send_block(at, bytes);
        } else {
            receive_block(at, bytes);
            look(got, at, bytes);
            must(memcmp(got, wanted, bytes), "bytes differ");
        }
    }
    give(block);
    free(wanted);
    free(got);
}

static int run(void)
{
    unsigned seed = 0;
    if (on_gpu)
        start_gpu();
    start_ucx();
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int round = 0; round < ROUNDS; round++)
            for (size_t o = 0; o < sizeof offsets / sizeof *offsets; o++)
                exchange(sizes[s], offsets[o], seed += 2);
        if (!rank)
            printf("%zu bytes: right\n", sizes[s]);
        fflush(stdout);
    }
    const ucp_request_param_t none = {0};
    finish(ucp_ep_close_nbx(peer, &none), "close");
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    return 0;
}

int main(int count, char **argument)
{
    int ends[2], status = 1;
    on_gpu = count == 2 && !strcmp(argument[1], "cuda");
    must(count != 2 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "usage: exchange cuda|host");
    pid_t child = fork();
    must(child < 0, "fork");
    rank = child == 0;
    other = ends[rank];
    close(ends[!rank]);
    if (rank)
        exit(run());
    run();
    must(waitpid(child, &status, 0) != child || status, "the other process");
    puts("both done");
    return 0;
}
