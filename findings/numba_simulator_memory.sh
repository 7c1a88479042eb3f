#!/usr/bin/env bash
# guess: numba-cuda's simulator reports the memory of its device as whole numbers of bytes.
# found (2026-11-30, numba-cuda 0.30.4): free and total are the floating-point infinity, so that code which computes a share of
#   them gets nan, and int() of them raises.
. "$(dirname "$0")/install.sh"
install numba-cuda==0.30.4 numba==0.68.1 llvmlite==0.50.0 numpy==2.4.6 packaging==26.4 cuda-core==1.2.2 cuda-bindings==13.5.0 cuda-pathfinder==1.9.1
NUMBA_ENABLE_CUDASIM=1 python3 -W ignore -c '
from numba import cuda
info = cuda.current_context().get_memory_info()
print(info, info.free / info.total)' | same "_MemoryInfo(free=inf, total=inf) nan"
