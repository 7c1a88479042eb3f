#!/usr/bin/env bash
# guess: the parser of PYTORCH_CUDA_ALLOC_CONF refuses a comma where a colon belongs, and a doubled comma.
# found (2026-11-30, torch 2.15.0, libc10.so): the result of ConfigTokenizer::checkToken is not used, so any token separates a
#   key from its value. A doubled comma makes the next key a value: that setting is lost without a word.
. "$(dirname "$0")/install.sh"
. "$(dirname "$0")/pytorch_settings.sh"
for text in max_split_size_mb,64 max_split_size_mb:64,garbage_collection_threshold:0.5 max_split_size_mb:64,,garbage_collection_threshold:0.5; do
    echo "$text => $("$work/settings" "$text")"
done | same "max_split_size_mb,64 => max_split_size 64 MiB, garbage_collection_threshold 0
max_split_size_mb:64,garbage_collection_threshold:0.5 => max_split_size 64 MiB, garbage_collection_threshold 0.5
max_split_size_mb:64,,garbage_collection_threshold:0.5 => max_split_size 64 MiB, garbage_collection_threshold 0"
