# Sourced by two scripts here: $work/settings TEXT prints what PyTorch's parser makes of a setting.
install torch==2.15.0
cat >"$work/settings.cpp" <<'CPP'
#include <c10/core/AllocatorConfig.h>
#include <cstdio>
#include <string>
int main(int count, char **words)
{
    using namespace c10::CachingAllocator;
    try {
        if (count > 1)
            setAllocatorSettings(words[1]);
        printf("max_split_size %zd MiB, garbage_collection_threshold %g\n",
               (ssize_t)AcceleratorAllocatorConfig::max_split_size() >> 20,
               AcceleratorAllocatorConfig::garbage_collection_threshold());
    } catch (std::exception &error) {
        puts("refused");
    }
}
CPP
g++ -std=c++20 -I"$work/site/torch/include" "$work/settings.cpp" -o "$work/settings" -L"$work/site/torch/lib" -lc10 \
    -Wl,-rpath,"$work/site/torch/lib" || exit 2
