"""usage: torch_handles.py SEED SECONDS. Tensors of random sizes, at most 2.6 GB and then 9 GB of them, each filled with a number of its
own, which must still be there before it goes. Nothing waits, so the device is behind and what is idle moves under its work."""

import random
import sys
import time

from point import say, torch_on_gpu

torch = torch_on_gpu()
MOST, THEN, CHANGE = 2600 << 20, 9000 << 20, 400
FLOATS = (1 << 20) // 4

dice = random.Random(int(sys.argv[1]))
end = time.monotonic() + float(sys.argv[2])
work = torch.randn(2048, 2048, device="cuda")
wrong = torch.zeros((), dtype=torch.int64, device="cuda")
held, held_bytes, operations = [], 0, 0
while time.monotonic() < end:
    operations += 1
    for _ in range(dice.randrange(3)):
        work = (work @ work).clamp(-1, 1)
    if held_bytes < (MOST if operations < CHANGE else THEN) and dice.random() < 0.6:
        mib = dice.choice([3, 8, 24, 64, 64, 64, 100, 192, 300]) if dice.random() < 0.7 else dice.randrange(2, 400)
        held.append((torch.full((mib * FLOATS - dice.randrange(1000),), operations, dtype=torch.int32, device="cuda"), operations))
        held_bytes += held[-1][0].nbytes
    elif held:
        tensor, number = held.pop(dice.randrange(len(held)))
        wrong += (tensor != number).sum()
        held_bytes -= tensor.nbytes
        del tensor
    if operations % 500 == 0:
        torch.cuda.synchronize()
say(operations=operations, wrong=int(wrong))
