#!/usr/bin/env bash
# guess: CUPY_GPU_MEMORY_LIMIT takes 8GiB and a share such as 0.5.
# found (2026-11-30, CuPy 14.2.0): only whole bytes and per cent. `8GiB`, `0.5` and `1e9` are refused; 110% is taken.
. "$(dirname "$0")/install.sh"
install cupy-cuda13x==14.2.0 numpy==2.4.6 cuda-pathfinder==1.9.1
python3 -W ignore -c '
from cupy.cuda.memory import _parse_limit_string
for text in ("8GiB", "0.5", "1e9", "8589934592", "50%", "110%"):
    try:
        print(text, _parse_limit_string(text))
    except ValueError:
        print(text, "refused")' | same "8GiB refused
0.5 refused
1e9 refused
8589934592 {'size': 8589934592, 'fraction': None}
50% {'size': None, 'fraction': 0.5}
110% {'size': None, 'fraction': 1.1}"
