"""Steps of one workload with nothing recorded, and with each kind of recording, by turns.

usage: torch_recorded.py NAME ROUNDS STEPS KIND...     NAME of torch_more.py; KIND: settings, VARIABLE=VALUE,... or plain

PyTorch is loaded once, which takes longer than the steps; each run is a forked child, which has no CUDA yet and so begins
from nothing, with settings of its own. Prints what torch_more.py prints, with the number of the kind before it.
"""

import os
import sys

os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # to ask whether there is a GPU must not begin CUDA
import torch_more


def run(number, name, steps, settings):
    """One child, to its end."""
    child = os.fork()
    if not child:
        os.environ.update(settings)
        print(number, end=" ")
        torch_more.main(name, steps)
        sys.exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        sys.exit(f"{settings}: exit code {code}")


def main(name, rounds, steps, *kinds):
    settings = [dict(pair.split("=", 1) for pair in kind.split(",") if "=" in pair) for kind in kinds]
    for number in range(int(rounds)):
        for kind in range(len(kinds))[::-1 if number % 2 else 1]:
            run(kind, name, int(steps), settings[kind])


if __name__ == "__main__":
    main(*sys.argv[1:])
