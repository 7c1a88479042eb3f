#!/bin/sh
# cuda_home.sh [FOLDER [PYTHON]]: prints the folder of a CUDA toolkit (it has include/cuda.h): FOLDER if it is named, else
# CUDA_HOME, nvcc, the usual places, and last the headers from PyPI (package nvidia-cuda-runtime): those that
# setup.sh has put into build-tools/, or those that PYTHON finds. Prints nothing and fails when there is none.

is_toolkit() {
    [ -n "$1" ] && [ -r "$1/include/cuda.h" ]
}

nvcc=$(command -v nvcc 2>/dev/null) && nvcc=$(readlink -f "$nvcc")
if [ -n "${1:-}" ]; then # a choice: no other will do
    is_toolkit "$1" && echo "$1"
    exit
fi
tools=$(dirname "$0")/../../build-tools
for home in "${CUDA_HOME:-}" "${CUDA_PATH:-}" "${nvcc%/bin/nvcc}" /usr/local/cuda /usr/local/cuda-* /opt/cuda /usr "$tools/cuda/nvidia/cu13"; do
    if is_toolkit "$home"; then
        case $home in
        "$tools"*) home=$(cd "$home" && pwd) ;;
        esac
        echo "$home"
        exit 0
    fi
done
[ -n "${2:-}" ] && exec "$2" -c '
import os, sys
homes = [os.path.join(path, "nvidia/cu13") for path in sys.path]
found = [home for home in homes if os.access(os.path.join(home, "include/cuda.h"), os.R_OK)]
print("".join(found[:1]))
sys.exit(not found)'
exit 1
