"""NCCL on two GPUs: a process for each GPU, or one process with a thread for each. usage: cover_nccl.py processes|threads"""

import os
import subprocess
import sys
import threading

from point import say, skip, torch_on_gpu

torch = torch_on_gpu()
if torch.cuda.device_count() < 2:
    skip("needs two GPUs")
ROUNDS = 30


def rank_main(rank):
    """One of two processes."""
    import torch.distributed as dist
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29512")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2)
    total = 0.0
    for number in range(ROUNDS):
        x = torch.full((1000 + 50000 * (number % 5),), float(rank + number), device="cuda")
        dist.all_reduce(x)
        parts = [torch.empty_like(x) for _ in range(2)]
        dist.all_gather(parts, x)
        dist.broadcast(x, 0)
        half = torch.empty(x.numel() // 2, device="cuda")
        dist.reduce_scatter_tensor(half, x[:2 * half.numel()].contiguous())
        total += float(x[0]) + float(half[0]) + float(parts[1][0])
    expected = sum(5 * (2 * number + 1.0) - (2 * number + 1.0) for number in range(ROUNDS))
    dist.barrier()
    dist.destroy_process_group()
    say(rank=rank, total=total, right=total == expected)


def processes():
    others = [subprocess.Popen([sys.executable, __file__, f"rank{rank}"]) for rank in (0, 1)]
    codes = [process.wait(150) for process in others]
    say(codes=codes)
    return max(codes)


def threads():
    """torch.cuda.nccl over two devices of this process, and a thread that works on each."""
    stop = threading.Event()

    def work(device):
        torch.cuda.set_device(device)
        while not stop.is_set():
            a = torch.randn(300, 300, device=f"cuda:{device}")
            (a @ a).sum().item()

    workers = [threading.Thread(target=work, args=(device,)) for device in (0, 1)]
    for worker in workers:
        worker.start()
    right = True
    for number in range(ROUNDS):
        n = 1000 + 50000 * (number % 5)
        inputs = [torch.full((n,), float(device + number), device=f"cuda:{device}") for device in (0, 1)]
        torch.cuda.nccl.all_reduce(inputs)
        for x in inputs:
            right = right and float(x[-1]) == 2 * number + 1
    stop.set()
    for worker in workers:
        worker.join()
    say(right=right)
    return 0 if right else 1


if __name__ == "__main__":
    way = sys.argv[1]
    if way.startswith("rank"):
        rank_main(int(way[4:]))
    else:
        sys.exit(processes() if way == "processes" else threads())
