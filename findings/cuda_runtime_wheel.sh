#!/usr/bin/env bash
# guess: the wheel of the CUDA run-time is enough to compile and link a program against libcudart: it has headers and libcudart.so.
# found (2026-11-30, nvidia-cuda-runtime 13.5.37): the name without a version is missing, so that -lcudart finds the static library
#   alone, and cuda_runtime.h includes crt/host_config.h, which another wheel (nvidia-cuda-crt) has. cuda_runtime_api.h does too.
. "$(dirname "$0")/install.sh"
install nvidia-cuda-runtime==13.5.37
home=$work/site/nvidia/cu13
{
    (cd "$home/lib" && ls)
    for header in cuda.h cuda_runtime_api.h cuda_runtime.h; do
        missing=$(echo "#include <$header>" | cc -xc -nostdinc -I"$home/include" -isystem "$(cc -print-file-name=include)" -isystem /usr/include \
            -isystem "/usr/include/$(cc -dumpmachine)" -fsyntax-only - 2>&1 | sed -n 's/.*fatal error: \(.*\): No such file.*/\1/p')
        echo "$header ${missing:+misses }${missing:-compiles}"
    done
} | same "libcudadevrt.a
libcudart.so.13
libcudart_static.a
cuda.h compiles
cuda_runtime_api.h misses crt/host_defines.h
cuda_runtime.h misses crt/host_config.h"
