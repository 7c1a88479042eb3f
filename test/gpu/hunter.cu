// Corruption hunter: threads allocate, launch kernels that hold a block and check it at their end, and free at once, on legacy,
// per-thread, blocking and non-blocking streams, in graphs, programmatically, on one GPU or two. Natively cudaFree waits, so every
// pattern holds; in front of a cache that reuses too early two kernels meet in one block. Prints one JSON line; exit 1 if
// anything was corrupted, 3 if it hung.
#include "hunter.cuh"
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <unistd.h>

shared_state common;
static std::atomic<uint64_t> seen[1 << 22]; // addresses that were handed out
static std::vector<std::atomic<worker *>> *workers;
static const char usage[] =
    "hunter [--seconds N] [--reuses N] [--threads N] [--devices N] [--seed N] [--style a|b] [--ns N] [--long-ns N] [--often N]\n"
    "       [--hang SECONDS] [--host] [--no-graphs] [--no-captures] [--no-programmatic] [--no-peers] [--no-churn]\n";

void note_error(cudaError_t error, const char *call, int line)
{
    if (common.errors.fetch_add(1) == 0)
        snprintf(common.first_error, sizeof(common.first_error), "line %d: %s: %s", line, call, cudaGetErrorString(error));
    cudaGetLastError();
}

void note_malloc(const void *address)
{
    uint64_t key = (uint64_t)(uintptr_t)address;
    size_t place = (size_t)((key >> 9) * 0x9e3779b97f4a7c15u >> 42);
    common.mallocs.fetch_add(1, std::memory_order_relaxed);
    for (;; place = (place + 1) % (1 << 22)) {
        uint64_t there = seen[place].load(std::memory_order_relaxed);
        if (there == 0 && seen[place].compare_exchange_strong(there, key))
            return;
        if (there == key)
            break;
    }
    common.reuses.fetch_add(1, std::memory_order_relaxed);
}

static double seconds_since(std::chrono::steady_clock::time_point begin)
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

static void print(double seconds, bool hung, u64 bad, const char *last)
{
    static const char *const names[] = {"kernels", "cooperative", "programmatic", "sets", "copies", "uploads", "sets_sync",
                                        "copies_sync", "graphs", "captured", "peer", "host_copies", "host_calls"};
    printf("{\"hung\": %s, \"style\": \"%s\", \"threads\": %d, \"devices\": %d, \"seconds\": %.1f, \"mallocs\": %llu, "
           "\"reuses\": %llu, \"same\": %llu, \"switches\": %llu, \"corrupted\": %llu, \"early\": %llu, \"errors\": %llu",
           hung ? "true" : "false", common.want.mostly_one ? "a" : "b", common.want.threads, common.want.devices, seconds,
           common.mallocs.load(), common.reuses.load(), common.same.load(), common.switches.load(), bad, common.early.load(),
           common.errors.load());
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        printf(", \"%s\": %llu", names[i], common.uses[i].load());
    printf(", \"first_error\": \"%s\", \"last\": \"%s\"}\n", common.first_error, last);
    fflush(stdout);
}

// No thread has made a step for a while: says what each is at, and ends the process.
static void watch()
{
    auto begin = std::chrono::steady_clock::now(), moved = begin;
    u64 before = 0;
    while (!common.stop) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        u64 now = common.steps;
        if (now != before)
            moved = std::chrono::steady_clock::now();
        before = now;
        if (seconds_since(moved) < common.want.hang)
            continue;
        std::string at;
        for (auto &slot : *workers) {
            worker *each = slot;
            at += each ? std::string(each->doing) + "; " : "";
        }
        print(seconds_since(begin), true, 0, at.c_str());
        _exit(3);
    }
}

// Style a: which stream is the lane now, and how often it is left.
static void change_phase(u64 &state)
{
    static const int lanes[] = {LEGACY, SHARED_FREE, SHARED_BLOCKING, DEFAULT};
    static const int alone[] = {LEGACY, SHARED_FREE, SHARED_BLOCKING, DEFAULT, PER_THREAD, FREE, BLOCKING};
    state = state * 6364136223846793005u + 1442695040888963407u;
    common.lane = common.want.threads == 1 ? alone[(state >> 33) % 7] : lanes[(state >> 33) % 4];
    common.one_in = 8u << (state >> 50) % 10;
}

// A worker after the other: threads, and their per-thread streams, end with work under way.
static void hunt(int id, double seconds)
{
    auto begin = std::chrono::steady_clock::now();
    u64 state = common.want.seed + (u64)id;
    for (int generation = 0; seconds_since(begin) < seconds && common.reuses < common.want.reuses; generation++) {
        std::thread one([&] {
            auto born = std::chrono::steady_clock::now();
            worker me(id, generation);
            (*workers)[(size_t)id] = &me;
            double life = common.want.churn ? 0.2 + 0.3 * (id % 5) : 1e9;
            for (unsigned n = 0; seconds_since(begin) < seconds && seconds_since(born) < life; n++) {
                for (int i = 0; i < 16; i++)
                    me.step();
                if (common.reuses >= common.want.reuses || common.errors > 1000)
                    break;
                if (id == 0 && n % 32 == 31)
                    change_phase(state);
            }
            (*workers)[(size_t)id] = nullptr;
        });
        one.join();
        if (common.errors > 1000)
            break;
    }
}

static bool parse(int count, char **argument)
{
    options &want = common.want;
    for (int i = 1; i < count; i++) {
        std::string name = argument[i];
        bool *flag = name == "--no-graphs"       ? &want.graphs
                     : name == "--no-captures"   ? &want.captures
                     : name == "--no-programmatic" ? &want.programmatic
                     : name == "--no-peers"      ? &want.peers
                     : name == "--no-churn"      ? &want.churn
                                                 : nullptr;
        if (flag || name == "--host") {
            *(flag ? flag : &want.host) = !flag;
            continue;
        }
        if (++i == count)
            return false;
        double value = atof(argument[i]);
        if (name == "--seconds")
            want.seconds = value;
        else if (name == "--reuses")
            want.reuses = (u64)value;
        else if (name == "--threads")
            want.threads = (int)value;
        else if (name == "--devices")
            want.devices = (int)value;
        else if (name == "--seed")
            want.seed = (u64)value;
        else if (name == "--style")
            want.mostly_one = argument[i][0] == 'a';
        else if (name == "--ns")
            want.ns = (unsigned)value;
        else if (name == "--long-ns")
            want.long_ns = (unsigned)value;
        else if (name == "--often")
            want.often = (unsigned)value;
        else if (name == "--hang")
            want.hang = (int)value;
        else
            return false;
    }
    return want.threads > 0 && want.devices > 0 && want.devices < 3 && want.ns > 0 && want.often > 0;
}

static void begin_device(int device)
{
    GOOD(cudaSetDevice(device));
    GOOD(cudaStreamCreate(&common.streams[device][0]));
    GOOD(cudaStreamCreateWithFlags(&common.streams[device][1], cudaStreamNonBlocking));
    GOOD(cudaMalloc(&common.bad[device], 8));
    GOOD(cudaMemset(common.bad[device], 0, 8));
    GOOD(cudaMalloc(&common.source[device], BIG));
    fill_source<<<64, 256>>>(common.source[device], BIG / 4);
    hold<<<1, 1>>>({nullptr, 0, 1}, 0, 0, common.bad[device], 0); // loads the kernels before anything is timed or captured
    check<<<1, 1>>>({nullptr, 0, 1}, 0, 0, 0, common.bad[device]);
    if (common.want.devices > 1) {
        int can = 0;
        GOOD(cudaDeviceCanAccessPeer(&can, device, 1 - device));
        if (can)
            GOOD(cudaDeviceEnablePeerAccess(1 - device, 0));
        else
            common.want.peers = false;
    }
    GOOD(cudaDeviceSynchronize());
}

int main(int count, char **argument)
{
    if (!parse(count, argument)) {
        fputs(usage, stderr);
        return 2;
    }
    for (int device = 0; device < common.want.devices; device++)
        begin_device(device);
    GOOD(cudaMallocHost(&common.pinned, BIG));
    for (size_t i = 0; i < BIG / 4; i++)
        common.pinned[i] = source_word(i);
    std::vector<std::atomic<worker *>> slots((size_t)common.want.threads);
    workers = &slots;
    auto begin = std::chrono::steady_clock::now();
    std::thread watcher(watch);
    std::vector<std::thread> threads;
    for (int i = 0; i < common.want.threads; i++)
        threads.emplace_back(hunt, i, common.want.seconds);
    for (auto &thread : threads)
        thread.join();
    common.stop = true;
    watcher.join();
    double seconds = seconds_since(begin);
    for (const block &b : common.given)
        GOOD(cudaFree(b.at));
    u64 bad = 0;
    cudaError_t error = cudaSuccess;
    for (int device = 0; device < common.want.devices; device++) {
        u64 here = 0;
        GOOD(cudaSetDevice(device));
        cudaError_t end = cudaDeviceSynchronize();
        error = error ? error : end;
        GOOD(cudaMemcpy(&here, common.bad[device], 8, cudaMemcpyDeviceToHost));
        bad += here;
    }
    print(seconds, false, bad, cudaGetErrorString(error));
    return bad || common.early || common.errors || error != cudaSuccess;
}
