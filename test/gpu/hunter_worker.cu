// One thread of the corruption hunter. Everything it does is right natively, because cudaFree waits for the device.
#include "hunter.cuh"
#include <cstring>

enum { KERNEL, COOPERATIVE, PROGRAMMATIC, SET, COPY, UPLOAD, SET_SYNC, COPY_SYNC, GRAPH, CAPTURED, PEER, HOST_COPY, HOST_CALL };

worker::worker(int id, int generation) : id(id), device(id % common.want.devices)
{
    state = common.want.seed * 0x9e3779b97f4a7c15u + (u64)id * 1000003 + (u64)generation * 7919;
    GOOD(cudaSetDevice(device));
    streams[DEFAULT] = nullptr;
    streams[LEGACY] = cudaStreamLegacy;
    streams[PER_THREAD] = cudaStreamPerThread;
    for (int i : {BLOCKING, BLOCKING2})
        GOOD(cudaStreamCreate(&streams[i]));
    for (int i : {FREE, FREE2})
        GOOD(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    streams[SHARED_BLOCKING] = common.streams[device][0];
    streams[SHARED_FREE] = common.streams[device][1];
    GOOD(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    GOOD(cudaMallocHost(&host, 65536));
    if (common.want.devices > 1) {
        GOOD(cudaSetDevice(1 - device));
        GOOD(cudaStreamCreateWithFlags(&far, cudaStreamNonBlocking));
        GOOD(cudaSetDevice(device));
    }
    if (common.want.graphs) {
        size_t nodes = 1;
        words none = {nullptr, 0, 1};
        GOOD(cudaStreamBeginCapture(streams[FREE], cudaStreamCaptureModeThreadLocal));
        hold<<<1, 128, 0, streams[FREE]>>>(none, 0, 0, common.bad[device], 0);
        GOOD(cudaStreamEndCapture(streams[FREE], &graph));
        GOOD(cudaGraphGetNodes(graph, &node, &nodes));
        GOOD(cudaGraphInstantiate(&exec, graph, 0));
    }
}

// Streams end with their work still running; their blocks are freed after them, here or by another thread.
worker::~worker()
{
    doing = "end";
    for (int i : {BLOCKING, BLOCKING2, FREE, FREE2})
        GOOD(cudaStreamDestroy(streams[i]));
    if (far)
        GOOD(cudaStreamDestroy(far));
    if (exec) {
        GOOD(cudaGraphExecDestroy(exec));
        GOOD(cudaGraphDestroy(graph));
    }
    while (held.size() > 4)
        hand_over();
    end_some(0);
    GOOD(cudaEventDestroy(event));
    GOOD(cudaFreeHost(host));
}

u64 worker::random()
{
    u64 z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

size_t worker::some_bytes()
{
    if (below(40) == 0)
        return (size_t)(1 + below(4)) << 21; // of the large pool
    return (size_t)512 << below(7);
}

unsigned worker::some_ns(bool pointed)
{
    if (below(pointed ? (common.want.mostly_one ? 4 : 8) : common.want.often) == 0)
        return common.want.long_ns / 2 + below(common.want.long_ns);
    return below(2 * common.want.ns);
}

// Style a: nearly always the lane that all threads share, now and then any other.
int worker::some_stream()
{
    return common.want.mostly_one && below(common.one_in) != 0 ? common.lane.load() : (int)below(STREAMS);
}

void worker::moved_to(int stream)
{
    int key = device * 64 + (stream < BLOCKING || stream > FREE2 ? stream : stream + 8 * (1 + id % 6));
    if (common.last_stream.exchange(key, std::memory_order_relaxed) != key)
        common.switches.fetch_add(1, std::memory_order_relaxed);
}

words worker::words_of(const block &b) const
{
    unsigned count = (unsigned)(b.bytes / 4), stride = 1;
    for (; count > 4096; count /= 2)
        stride *= 2;
    return {b.at, count, stride};
}

block worker::make(size_t bytes)
{
    block b = {nullptr, bytes, device, -1};
    GOOD(cudaMalloc(&b.at, bytes));
    if (!b.at) {
        b.bytes = 0;
        return b;
    }
    note_malloc(b.at);
    return b;
}

void worker::end(block b)
{
    if (b.at)
        GOOD(cudaFree(b.at));
}

void worker::end_some(size_t keep)
{
    while (held.size() > keep) {
        size_t k = below((unsigned)held.size());
        block b = held[k];
        held[k] = held.back();
        held.pop_back();
        end(b);
    }
}

void worker::use_kernel(const block &b, int stream, unsigned ns, int kind)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(128);
    config.stream = streams[stream];
    config.attrs = &attribute;
    config.numAttrs = kind == KERNEL ? 0 : 1;
    if (kind == COOPERATIVE) {
        attribute.id = cudaLaunchAttributeCooperative;
        attribute.val.cooperative = 1;
    } else {
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
    }
    GOOD(cudaLaunchKernelEx(&config, hold, words_of(b), (uint32_t)random(), ns, common.bad[device], 1u));
}

void worker::use_check(const block &b, int stream, unsigned ns, int pattern, uint32_t value)
{
    check<<<1, 128, 0, streams[stream]>>>(words_of(b), pattern, value, ns, common.bad[device]);
    GOOD(cudaPeekAtLastError());
}

void worker::use_graph(const block &b, int stream, unsigned ns)
{
    words w = words_of(b);
    uint32_t value = (uint32_t)random();
    unsigned poison = 1;
    void *arguments[] = {&w, &value, &ns, &common.bad[device], &poison};
    cudaKernelNodeParams params = {};
    params.func = (void *)hold;
    params.gridDim = dim3(1);
    params.blockDim = dim3(128);
    params.kernelParams = arguments;
    GOOD(cudaGraphExecKernelNodeSetParams(exec, node, &params));
    GOOD(cudaGraphLaunch(exec, streams[stream]));
}

// The first use of a fresh block, of every kind (in style a those that leave the lane only when it is left). A programmatic launch depends on nothing before it: its block is its own.
void worker::use(block &b, int stream, bool pointed)
{
    unsigned ns = some_ns(pointed), kind = below(16), byte = below(256);
    if (!b.at)
        return;
    bool leaves = kind == PROGRAMMATIC || ((kind == SET_SYNC || kind == COPY_SYNC) && stream != DEFAULT);
    if (kind >= CAPTURED || (kind == GRAPH && !common.want.graphs) || (leaves && common.want.mostly_one && below(common.one_in)) ||
        (kind == PROGRAMMATIC && (!common.want.programmatic || stream < BLOCKING)))
        kind = KERNEL;
    if (kind == SET_SYNC || kind == COPY_SYNC)
        stream = DEFAULT;
    moved_to(stream);
    common.uses[kind].fetch_add(1, std::memory_order_relaxed);
    b.stream = stream;
    if (kind == SET)
        GOOD(cudaMemsetAsync(b.at, (int)byte, b.bytes, streams[stream]));
    else if (kind == SET_SYNC)
        GOOD(cudaMemset(b.at, (int)byte, b.bytes));
    else if (kind == COPY)
        GOOD(cudaMemcpyAsync(b.at, common.source[device], b.bytes, cudaMemcpyDeviceToDevice, streams[stream]));
    else if (kind == COPY_SYNC)
        GOOD(cudaMemcpy(b.at, common.source[device], b.bytes, cudaMemcpyDeviceToDevice));
    else if (kind == UPLOAD)
        GOOD(cudaMemcpyAsync(b.at, common.pinned, b.bytes, cudaMemcpyHostToDevice, streams[stream]));
    if (kind == SET || kind == SET_SYNC)
        use_check(b, stream, ns, 0, byte * 0x01010101u);
    else if (kind == COPY || kind == COPY_SYNC || kind == UPLOAD)
        use_check(b, stream, ns, 1, 0);
    else if (kind == GRAPH)
        use_graph(b, stream, ns);
    else
        use_kernel(b, stream, ns, (int)kind);
}

// A held block once more: on its stream, or in order on another.
void worker::use_again()
{
    doing = "use again";
    if (held.empty())
        return;
    block &b = held[below((unsigned)held.size())];
    int stream = some_stream();
    if (b.stream < 0 || !b.at)
        return;
    if (stream != b.stream) {
        GOOD(cudaEventRecord(event, streams[b.stream]));
        GOOD(cudaStreamWaitEvent(streams[stream], event, 0));
    }
    moved_to(stream);
    b.stream = stream;
    use_kernel(b, stream, some_ns(false), KERNEL);
}

// Free with the kernel still running, take the same size at once, and use it first on another stream perhaps.
void worker::pointed()
{
    doing = "pointed";
    size_t bytes = some_bytes();
    int lane = common.want.mostly_one ? common.lane.load() : some_stream();
    int next = some_stream();
    block first = make(bytes);
    use(first, lane, next != lane); // a lane that is not left is kept short, or it would never be seen idle
    end(first);
    block second = make(bytes);
    common.same.fetch_add(second.at == first.at, std::memory_order_relaxed);
    use(second, next, false);
    held.push_back(second);
    end_some(8);
}

void worker::plain()
{
    doing = "plain";
    block b = make(some_bytes());
    use(b, some_stream(), false);
    held.push_back(b);
    end_some(1 + below(12));
}

// Kernels, a set and a copy in a graph of their own blocks; the blocks are freed behind its launch. Relaxed: with memory freed
// and taken while the capture is under way.
void worker::capture(bool relaxed)
{
    doing = "capture";
    cudaGraph_t captured = nullptr;
    cudaGraphExec_t launched = nullptr;
    cudaStream_t stream = streams[FREE];
    block a = make(some_bytes()), b = make(some_bytes()), c = {};
    if (!a.at || !b.at)
        return;
    GOOD(cudaStreamBeginCapture(stream, relaxed ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeThreadLocal));
    use_kernel(a, FREE, some_ns(true), KERNEL);
    if (relaxed) {
        c = make(some_bytes());
        use_kernel(c, FREE2, some_ns(true), KERNEL); // outside of the graph
        end(c);
        c = make(c.bytes);
        use_kernel(c, FREE, some_ns(false), KERNEL);
    }
    GOOD(cudaMemsetAsync(b.at, 17, b.bytes, stream));
    use_check(b, FREE, some_ns(true), 0, 17 * 0x01010101u);
    GOOD(cudaStreamEndCapture(stream, &captured));
    GOOD(cudaGraphInstantiate(&launched, captured, 0));
    int target = some_stream();
    moved_to(target);
    common.uses[CAPTURED].fetch_add(1, std::memory_order_relaxed);
    for (int i = 0; i < 2; i++)
        GOOD(cudaGraphLaunch(launched, streams[target]));
    for (const block &each : {a, b, c})
        end(each);
    GOOD(cudaGraphExecDestroy(launched));
    GOOD(cudaGraphDestroy(captured));
}

static void CUDART_CB tell(void *flag)
{
    ((std::atomic<uint32_t> *)flag)->store(1);
}

// When cudaFree returns the host sees what was asked for before it: a copy, a host function.
void worker::host_sees()
{
    doing = "host sees";
    block b = make((size_t)512 << below(7));
    int stream = some_stream();
    if (!b.at)
        return;
    moved_to(stream);
    bool call = below(2);
    common.uses[call ? HOST_CALL : HOST_COPY].fetch_add(1, std::memory_order_relaxed);
    memset(host, 0, b.bytes);
    use_kernel(b, stream, 100 * common.want.ns, KERNEL);
    GOOD(cudaMemcpyAsync(b.at, common.source[device], b.bytes, cudaMemcpyDeviceToDevice, streams[stream]));
    if (call)
        GOOD(cudaLaunchHostFunc(streams[stream], tell, host));
    else
        GOOD(cudaMemcpyAsync(host, b.at, b.bytes, cudaMemcpyDeviceToHost, streams[stream]));
    end(b);
    bool seen = call ? ((std::atomic<uint32_t> *)host)->load() == 1 : true;
    for (size_t i = 0; !call && i < b.bytes / 4; i++)
        seen = seen && ((volatile uint32_t *)host)[i] == source_word(i);
    common.early += !seen;
    if (!seen)
        GOOD(cudaStreamSynchronize(streams[stream])); // its buffer is used again
}

// Memory of this device whose old work was freed with it is used first by the other one, which the free does not wait for.
void worker::peer()
{
    doing = "peer";
    int other = 1 - device;
    size_t bytes = (size_t)512 << below(7);
    block first = make(bytes);
    use(first, some_stream(), true);
    end(first);
    block b = make(bytes);
    if (!b.at)
        return;
    common.uses[PEER].fetch_add(1, std::memory_order_relaxed);
    GOOD(cudaSetDevice(other));
    if (below(2)) {
        GOOD(cudaMemcpyPeerAsync(b.at, device, common.source[other], other, bytes, far));
        check<<<1, 128, 0, far>>>(words_of(b), 1, 0, some_ns(false), common.bad[other]);
    } else {
        hold<<<1, 128, 0, far>>>(words_of(b), (uint32_t)random(), some_ns(true), common.bad[other], 1);
    }
    GOOD(cudaPeekAtLastError());
    GOOD(cudaStreamSynchronize(far));
    if (below(2)) { // freed from there, or from here
        end(b);
        b.at = nullptr;
    }
    GOOD(cudaSetDevice(device));
    end(b);
}

// To another thread, which only frees it.
void worker::hand_over()
{
    doing = "hand over";
    block taken = {};
    {
        std::lock_guard<std::mutex> guard(common.lock);
        if (!held.empty()) {
            common.given.push_back(held.back());
            held.pop_back();
        }
        if (common.given.size() > 32) {
            size_t k = below((unsigned)common.given.size());
            taken = common.given[k];
            common.given[k] = common.given.back();
            common.given.pop_back();
        }
    }
    end(taken);
}

// A stream ends under its work, and its handle may come back as another's; its blocks are freed after that.
void worker::renew_stream()
{
    doing = "renew stream";
    int which = (int[]){BLOCKING, BLOCKING2, FREE, FREE2}[below(4)];
    GOOD(cudaStreamDestroy(streams[which]));
    GOOD(cudaStreamCreateWithFlags(&streams[which], which <= BLOCKING2 ? cudaStreamDefault : cudaStreamNonBlocking));
    for (size_t i = held.size(); i-- > 0;)
        if (held[i].stream == which) {
            block b = held[i];
            held.erase(held.begin() + (long)i);
            end(b);
        }
}

void worker::step()
{
    unsigned dice = below(4000);
    common.steps.fetch_add(1, std::memory_order_relaxed);
    if (dice < 2 && common.want.churn) {
        renew_stream();
    } else if (dice < 6 && common.want.captures) {
        capture(dice & 1);
    } else if (dice < 10 && common.want.host) {
        host_sees();
    } else if (dice < 20 && common.want.peers && common.want.devices > 1) {
        peer();
    } else if (dice < 24) {
        doing = "synchronize";
        GOOD(cudaStreamSynchronize(streams[some_stream()]));
    } else if (dice < 100) {
        hand_over();
    } else if (dice < 400) {
        use_again();
    } else if (dice < 1600) {
        pointed();
    } else {
        plain();
    }
}
