#!/usr/bin/env bash
# guess: RMM's log has times as 17:35:27:296219, the null stream as 0x0, and 0x0 as the pointer of a request that failed.
# found (2026-11-30, librmm-cu13 26.10.0): 17:35:27.296219, 0 for the null stream (others in hexadecimal), (nil).
. "$(dirname "$0")/install.sh"
install librmm-cu13==26.10.0 rapids-logger==0.3.0 nvidia-cuda-runtime==13.5.37
cat >"$work/log.cpp" <<'CPP'
#include <cstdlib>
#include <iostream>
#include <new>
#include <sstream>
#include <rmm/mr/logging_resource_adaptor.hpp>
struct host {
    void *allocate_sync(std::size_t bytes, std::size_t = 256)
    {
        if (bytes > 1u << 30)
            throw std::bad_alloc();
        return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    }
    void deallocate_sync(void *block, std::size_t, std::size_t = 256) noexcept { std::free(block); }
    void *allocate(cuda::stream_ref, std::size_t bytes, std::size_t = 256) { return allocate_sync(bytes); }
    void deallocate(cuda::stream_ref, void *block, std::size_t, std::size_t = 256) noexcept { std::free(block); }
    bool operator==(host const &) const noexcept { return true; }
    friend void get_property(host const &, cuda::mr::device_accessible) noexcept {}
};
int main()
{
    std::ostringstream out;
    rmm::mr::logging_resource_adaptor log{host{}, out, true};
    cuda::stream_ref none{cudaStream_t{nullptr}}, some{reinterpret_cast<cudaStream_t>(0x5550)};
    log.deallocate(some, log.allocate(some, 77, 256), 77, 256);
    try {
        log.allocate(none, std::size_t{1} << 40, 256);
    } catch (std::bad_alloc const &) {
    }
    log.flush();
    std::cout << out.str();
}
CPP
site=$work/site
g++ -std=c++20 -w -I"$site/librmm/include" -I"$site/librmm/include/rapids" -I"$site/rapids_logger/include" \
    -I"$site/nvidia/cu13/include" "$work/log.cpp" -o "$work/log" -L"$site/librmm/lib64" -lrmm \
    -L"$site/rapids_logger/lib64" -lrapids_logger || exit 2
LD_LIBRARY_PATH=$site/librmm/lib64:$site/rapids_logger/lib64 "$work/log" |
    sed -E 's/^[0-9]+,[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6},/THREAD,HH:MM:SS.micros,/; s/,0x[0-9a-f]{6,},/,ADDRESS,/' |
    same "Thread,Time,Action,Pointer,Size,Stream
THREAD,HH:MM:SS.micros,allocate,ADDRESS,77,0x5550
THREAD,HH:MM:SS.micros,free,ADDRESS,77,0x5550
THREAD,HH:MM:SS.micros,allocate failure,(nil),1099511627776,0"
