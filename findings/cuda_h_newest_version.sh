#!/usr/bin/env bash
# guess: a plain name in cuda.h stands for the newest version of its function, the one that cuGetProcAddress gives for the version
#   of the header.
# found (2026-11-30, cuda.h of nvidia-cuda-runtime 13.5.37): cuGraphAddNode is _v2, and cuGraphNodeSetParams has no suffix, though
#   13.4 brought cuGraphAddNode_v3 and cuGraphNodeSetParams_v2. So a program that links and one that asks
#   cuGetProcAddress for version 13040 are meant to reach different functions.
. "$(dirname "$0")/install.sh"
install nvidia-cuda-runtime==13.5.37
include=$work/site/nvidia/cu13/include
{
    printf '#include <cuda.h>\nPLAIN cuGraphAddNode cuGraphNodeSetParams\n' | cc -E -P -I"$include" - | grep '^PLAIN'
    grep -oE 'PFN_cuGraph(AddNode|NodeSetParams)_v[0-9]+' "$include/cudaTypedefs.h" | sort -u
    grep -oE 'CUDAAPI cuGraph(AddNode_v3|NodeSetParams_v2)\(' "$include/cuda.h"
} | same "PLAIN cuGraphAddNode_v2 cuGraphNodeSetParams
PFN_cuGraphAddNode_v12020
PFN_cuGraphAddNode_v12030
PFN_cuGraphAddNode_v13040
PFN_cuGraphNodeSetParams_v12020
PFN_cuGraphNodeSetParams_v13040
CUDAAPI cuGraphAddNode_v3(
CUDAAPI cuGraphNodeSetParams_v2("
