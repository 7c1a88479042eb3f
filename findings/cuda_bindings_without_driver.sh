#!/usr/bin/env bash
# guess: without a driver, cuda.bindings' cuInit returns an error code beside its result, as all its functions do.
# found (2026-11-30, cuda-bindings 13.5.0): cuInit raises DynamicLibNotFoundError, while the run-time's cudaGetDeviceCount returns
#   cudaErrorInsufficientDriver. (Where a driver is installed nothing can be shown.)
. "$(dirname "$0")/install.sh"
ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1' && { echo "a driver is installed here"; exit 2; }
install cuda-bindings==13.5.0 cuda-pathfinder==1.9.1
python3 -c '
from cuda.bindings import driver, runtime
try:
    print("cuInit", driver.cuInit(0))
except Exception as error:
    print("cuInit raises", type(error).__name__)
print("cudaGetDeviceCount", runtime.cudaGetDeviceCount())' | same "cuInit raises DynamicLibNotFoundError
cudaGetDeviceCount (<cudaError_t.cudaErrorInsufficientDriver: 35>, None)"
