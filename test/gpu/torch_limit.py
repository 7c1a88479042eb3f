"""A memory limit: 128 MiB at a time until there is no more, then half freed and taken again."""

from point import say, torch_on_gpu, torch_point

torch = torch_on_gpu()
SIZE = 128 << 20
MOST = 64


def take(tensors):
    """Takes until out of memory (or MOST); True if that came."""
    while len(tensors) < MOST:
        try:
            tensors.append(torch.empty(SIZE, dtype=torch.uint8, device="cuda"))
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            return True
    return False


torch.cuda.init()
free, total = torch.cuda.mem_get_info()
held = []
failed = take(held)
first = len(held)
torch_point(torch, "full")
del held[::2]
again = take(held)
for index, tensor in enumerate(held):
    tensor.fill_(index)
torch.cuda.synchronize()
right = all(int(tensor[0]) == index == int(tensor[-1]) for index, tensor in enumerate(held))
say(free_bytes=free, total_bytes=total, first=first, failed=failed, second=len(held), again=again,
    right=right)
