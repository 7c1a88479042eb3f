#!/usr/bin/env bash
# guess: ONNX Runtime refuses an arena_extend_strategy that it does not have: OrtArenaCfg raises, or at the latest
#   create_and_register_allocator does.
# found (2026-11-30, onnxruntime 1.32.0): OrtArenaCfg takes 7, where there are 0 and 1. create_and_register_allocator logs an error and
#   returns as if it had registered an allocator. OrtArenaCfg refuses a text, in words that name no key.
. "$(dirname "$0")/install.sh"
install onnxruntime==1.32.0 numpy==2.4.6 flatbuffers==25.12.19 packaging==26.2 protobuf==7.35.1
cat >"$work/arena.py" <<'PY'
import onnxruntime as ort

info = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
config = ort.OrtArenaCfg({"arena_extend_strategy": 7})
print("configuration:", type(config).__name__)
print("registered:", ort.create_and_register_allocator(info, config), flush=True)
try:
    ort.OrtArenaCfg({"arena_extend_strategy": "kSameAsRequested"})
except RuntimeError as error:
    print("text:", str(error)[:35])
PY
python3 "$work/arena.py" 2>"$work/log" | same "configuration: OrtArenaCfg
registered: None
text: Unable to cast Python instance of t"
sed 's/\x1b\[[0-9;]*m//g' "$work/log" | grep -o "Received invalid value of arena_extend_strategy 7" | same "Received invalid value of arena_extend_strategy 7"
