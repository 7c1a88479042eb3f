#!/usr/bin/env bash
# guess: functions of the driver that bind memory by its address take a CUdeviceptr and a size_t, as cuMulticastBindAddr does.
# found (2026-11-30, cuda.h of nvidia-cuda-runtime 13.5.37): cuLogicalEndpointBindAddr takes a void * and a cuuint64_t.
. "$(dirname "$0")/install.sh"
install nvidia-cuda-runtime==13.5.37
tr '\n' ' ' <"$work/site/nvidia/cu13/include/cuda.h" | grep -oE 'CUDAAPI cu(Multicast|LogicalEndpoint)BindAddr(_v2)?\([^)]*\)' | sort -u |
    same "CUDAAPI cuLogicalEndpointBindAddr(CUlogicalEndpointId leId, CUdevice dev, cuuint64_t offset, void *ptr, cuuint64_t size, unsigned long long flags)
CUDAAPI cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUdeviceptr memptr, size_t size, unsigned long long flags)
CUDAAPI cuMulticastBindAddr_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset, CUdeviceptr memptr, size_t size, unsigned long long flags)"
