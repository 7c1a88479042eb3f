#!/usr/bin/env bash
# guess: PYTORCH_ALLOC_CONF wins over PYTORCH_CUDA_ALLOC_CONF, as c10/core/AllocatorConfig.h says ("supported with lower
#   priority"), and a variable that is empty counts as unset.
# found (2026-11-30, torch 2.15.0 for CUDA, libc10.so): PYTORCH_CUDA_ALLOC_CONF wins, then PYTORCH_HIP_ALLOC_CONF (also in this
#   build for CUDA), then PYTORCH_ALLOC_CONF. An empty one wins as well: then the defaults hold (-1 MiB: unlimited).
. "$(dirname "$0")/install.sh"
. "$(dirname "$0")/pytorch_settings.sh"
ask() {
    echo "$* => $(env "$@" "$work/settings")"
}
{
    ask PYTORCH_ALLOC_CONF=max_split_size_mb:64 PYTORCH_HIP_ALLOC_CONF=max_split_size_mb:96 PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128
    ask PYTORCH_ALLOC_CONF=max_split_size_mb:64 PYTORCH_HIP_ALLOC_CONF=max_split_size_mb:96
    ask PYTORCH_ALLOC_CONF=max_split_size_mb:64 PYTORCH_CUDA_ALLOC_CONF=
} | same "PYTORCH_ALLOC_CONF=max_split_size_mb:64 PYTORCH_HIP_ALLOC_CONF=max_split_size_mb:96 PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 => max_split_size 128 MiB, garbage_collection_threshold 0
PYTORCH_ALLOC_CONF=max_split_size_mb:64 PYTORCH_HIP_ALLOC_CONF=max_split_size_mb:96 => max_split_size 96 MiB, garbage_collection_threshold 0
PYTORCH_ALLOC_CONF=max_split_size_mb:64 PYTORCH_CUDA_ALLOC_CONF= => max_split_size -1 MiB, garbage_collection_threshold 0"
