"""Ways to save memory (seed 6), each with and without. usage: torch_saving.py VARIANT…

Prints what was computed; at the points `VARIANT begin` and `VARIANT end` the figures can be read.
"""

import gc
import sys

from point import say, torch_on_gpu, torch_point

torch = torch_on_gpu()
from torch.utils.checkpoint import checkpoint  # noqa: E402

DEPTH, WIDTH, ROWS = 16, 1024, 8192
TOGETHER = 4  # layers of one checkpoint


def network(dtype=torch.float32):
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())
              for _ in range(DEPTH)]
    return torch.nn.Sequential(*layers).to(device="cuda", dtype=dtype)


def data(dtype=torch.float32):
    return torch.linspace(-1, 1, ROWS * WIDTH, device="cuda").reshape(ROWS, WIDTH).to(dtype)


def value(tensor):
    return float(tensor.detach().double().sum()).hex()


def gradients(net):
    return value(torch.stack([p.grad.double().abs().sum() for p in net.parameters()]))


def forward(net, x):
    return value(net(x)[0])


def forward_no_grad(net, x):
    with torch.no_grad():
        return value(net(x)[0])


def forward_detached(net, x):
    for layer in net:
        x = layer(x.detach())
    return value(x[0])


def train(net, x):
    loss = net(x).square().mean()
    loss.backward()
    return [value(loss), gradients(net)]


def train_in_batches(net, x, count=8):
    losses = []
    for part in x.chunk(count):
        loss = net(part).square().mean() / count
        loss.backward()
        losses.append(loss.detach())
    return [value(torch.stack(losses)), gradients(net)]


def train_with_checkpoints(net, x):
    y = x
    for i in range(0, DEPTH, TOGETHER):
        y = checkpoint(net[i:i + TOGETHER], y, use_reentrant=False)
    loss = y.square().mean()
    loss.backward()
    return [value(loss), gradients(net)]


def keep_all(net, x):
    del net
    kept = [x]
    for i in range(DEPTH):
        kept.append(kept[-1] * 0.5 + i)
    return value(kept[-1][0])


def free_in_time(net, x):
    del net
    last = x
    for i in range(DEPTH):
        last = last * 0.5 + i
    return value(last[0])


def move_to_cpu(net, x):
    del net
    kept = [x.cpu()]
    for i in range(DEPTH):
        kept.append((kept[-1].cuda() * 0.5 + i).cpu())
    return value(kept[-1][0])


VARIANTS = {
    "forward": forward, "no_grad": forward_no_grad, "detach": forward_detached, "half": forward,
    "bf16": forward, "train": train, "batches": train_in_batches,
    "checkpoint": train_with_checkpoints, "keep": keep_all, "free": free_in_time,
    "cpu": move_to_cpu,
}
DTYPES = {"half": torch.float16, "bf16": torch.bfloat16}


def warm_up():
    """The libraries' own workspaces come before everything that is measured."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        net = torch.nn.Linear(64, 64, device="cuda", dtype=dtype)
        net(torch.ones(64, 64, device="cuda", dtype=dtype)).square().mean().backward()
    gc.collect()


def measure(name):
    dtype = DTYPES.get(name, torch.float32)
    net, x = network(dtype), data(dtype)
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch_point(torch, f"{name} begin")
    result = VARIANTS[name](net, x)
    torch_point(torch, f"{name} end")
    say(variant=name, result=result)


torch.backends.cuda.matmul.allow_tf32 = False
warm_up()
for variant in sys.argv[1:]:
    measure(variant)
