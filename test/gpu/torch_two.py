"""Two GPUs in one process: threads allocate, compute and copy between them, and free on other threads."""

import queue
import threading

import torch

assert torch.cuda.device_count() >= 2, "needs two GPUs"
STEPS = 300
handed = queue.Queue()
sums = {}


def work(device):
    generator = torch.Generator().manual_seed(device)
    total = 0.0
    for step in range(STEPS):
        n = int(torch.randint(1000, 400000, (1,), generator=generator))
        a = torch.full((n,), float(step % 17), device=f"cuda:{device}")
        b = (a * 2).to(f"cuda:{1 - device}")
        total += float(b.sum()) / n
        handed.put((a, b))
    sums[device] = total


def drop():
    while (item := handed.get()) is not None:
        del item


threads = [threading.Thread(target=work, args=(device,)) for device in (0, 1)]
dropper = threading.Thread(target=drop)
for thread in [*threads, dropper]:
    thread.start()
for thread in threads:
    thread.join()
handed.put(None)
dropper.join()
print({device: total.hex() for device, total in sorted(sums.items())})
