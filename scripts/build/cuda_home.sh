#!/bin/sh
# Prints the folder of a CUDA toolkit (it has include/cuda.h): the one named, else CUDA_HOME, nvcc, the usual places.
# Prints nothing and fails when there is none.

is_toolkit() {
    [ -n "$1" ] && [ -r "$1/include/cuda.h" ]
}

nvcc=$(command -v nvcc 2>/dev/null) && nvcc=$(readlink -f "$nvcc")
if [ -n "${1:-}" ]; then # a choice: no other will do
    is_toolkit "$1" && echo "$1"
    exit
fi
for home in "${CUDA_HOME:-}" "${CUDA_PATH:-}" "${nvcc%/bin/nvcc}" /usr/local/cuda /usr/local/cuda-* /opt/cuda /usr; do
    if is_toolkit "$home"; then
        echo "$home"
        exit 0
    fi
done
exit 1
