#!/usr/bin/env python3
"""Small real PyTorch programs of many kinds, for traces. usage: run.py --list | NAME

Models are made from their configurations, with random weights: nothing is downloaded. With PYTORCH_NO_CUDA_MEMORY_CACHING=1 in
front of us each gives a trace of what such a program asks for; ../record.sh traced makes them all."""

import importlib
import os
import pathlib
import sys
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from point import say, torch_on_gpu  # noqa: E402

for key, value in {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error"}.items():
    os.environ.setdefault(key, value)


def main(name):
    torch = torch_on_gpu()
    import common
    for path in sorted(HERE.glob("*.py")):
        if path.stem not in ("run", "common"):
            importlib.import_module(path.stem)
    if name == "--list":
        print("\n".join(common.PROGS))
        return
    if "CACHALOT_TRACED_MEMORY" in os.environ:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, int(os.environ["CACHALOT_TRACED_MEMORY"]) / total))
    torch.manual_seed(0)
    torch.set_num_threads(4)
    torch.backends.cudnn.benchmark = False
    begin = time.time()
    common.PROGS[name]()
    torch.cuda.synchronize()
    say(name=name, seconds=time.time() - begin, counts=common.counts, in_loops=time.time() - common.begin[0])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
